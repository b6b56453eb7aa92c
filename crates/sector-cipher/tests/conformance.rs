#[test]
fn smoke() {
    use sector_cipher::*;
    let c = Cipher::new(
        "aes-xts-plain64".parse().unwrap(),
        SectorSize::new(512).unwrap(),
        SectorCount::Units512,
        &(0..32).collect::<Vec<u8>>(),
        None,
    )
    .unwrap();
    let x = xts_mode::Xts128::new(
        <aes::Aes128 as aes::cipher::KeyInit>::new_from_slice(&(0..16).collect::<Vec<u8>>())
            .unwrap(),
        <aes::Aes128 as aes::cipher::KeyInit>::new_from_slice(&(16..32).collect::<Vec<u8>>())
            .unwrap(),
    );
    let mut a = vec![7u8; 512 * 11];
    let mut b = a.clone();
    c.encrypt(5, &mut a);
    x.encrypt_area(&mut b, 512, 5, xts_mode::get_tweak_default);
    assert!(a == b);
    c.decrypt(5, &mut a);
    assert!(a == [7; 512 * 11]);
}
