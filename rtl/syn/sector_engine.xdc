# An example of constraints for sector_engine by itself (out of context), in Vivado.
# Replace the period by that of your clock, and the delays by what your neighbours need.

create_clock -name aclk -period 3.333 [get_ports aclk]

# aresetn may come at any time; whoever drives it releases it in step with aclk.
set_false_path -from [get_ports aresetn]

# The streams come from registers and go to registers beside the engine.
set streams_in [get_ports {s_axis_*_tvalid s_axis_*_tdata[*] m_axis_data_tready zeroize}]
set streams_out [get_ports {s_axis_*_tready m_axis_data_tvalid m_axis_data_tdata[*] m_axis_data_tlast expanded}]
set_input_delay -clock aclk 1.0 $streams_in
set_output_delay -clock aclk 1.0 $streams_out
