#!/bin/sh
# Runs inside the guest: KUnit's tests and benchmark of AES-XTS.
insmod /in/aes_xts_kunit.ko || exit
dmesg | sed -n 's/^\[[^]]*\] *//; /# Subtest: aes_xts/,$p'
dmesg | grep -q 'ok 1 aes_xts$' && ! dmesg | grep -q 'not ok'
