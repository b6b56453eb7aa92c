//! Images in a Ceph cluster that are added to a server while it runs.

use std::path::Path;

use rustix::process::Signal;
use xtent_control::{Attach, Link, Reply, Request, Source, sample};
use xtent_tests::ceph::{Bed, cluster};
use xtent_tests::gateway::Gateway;
use xtent_tests::luks::{Container, KEY, Maker, OTHER_KEY, Shape, add_key};
use xtent_tests::nbd::{command, nbdsh, read_all, write_all};
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{PATIENCE, Scratch, pattern, process};

use super::control::{said, said_of_keys};
use super::{SIZE, container, usize_of};

const SHAPE: Shape = Shape::LUKS2_4096;

type Settings = Vec<(String, String)>;

/// An image with a volume that the file `key` opens.
fn image(bed: &Bed, scratch: &Scratch, name: &str) -> Container {
    let key = scratch.file("key", KEY);
    let container = bed.container(name, SHAPE.data_offset() + SIZE, &key);
    SHAPE.format(Maker::Xtent, &container.image, &key);
    container
}

fn threads(gateway: &Gateway) -> u64 {
    gateway.number("Threads:")
}

/// No thread has a capability or calls what the filter does not have, librados' own included.
fn assert_confined(gateway: &Gateway) {
    let mut of_ceph = 0;
    for status in process::threads(gateway.id()) {
        of_ceph += usize::from(status.contains("Name:\tmsgr-worker"));
        for line in [
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
            "CapEff:\t0000000000000000",
            "CapPrm:\t0000000000000000",
        ] {
            assert!(status.contains(line), "{line:?} is not in {status}");
        }
    }
    assert_ne!(of_ceph, 0);
}

#[test]
fn an_image_is_attached_beside_another_and_detached() {
    let Some(bed) = cluster("an_image_is_attached_beside_another_and_detached") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let [one, two] = ["first", "second"].map(|name| image(bed, &scratch, name));
    let gateway = Gateway::start(&[&one], &[]);
    let before = (gateway.files(), threads(&gateway));
    for round in 0..2 {
        gateway.attach(&two).args(["--export", "two"]).ok();
        let data = pattern(usize_of(SIZE), round);
        write_all(&gateway.uri("two"), &data);
        assert_same(&read_all(&gateway.uri("two")), &data, "through the server");
        // Whose it is now, nobody else writes to.
        let taken = add_key(2, &two.image, &two.key, &two.key).fails(5);
        taken.says(&["is in use by `xtent serve`"]);
        let status = gateway.status();
        let shown = status.iter().find(|it| it["export"] == "two").unwrap();
        assert_eq!(shown["device"], two.image.to_str().unwrap());
        // By its device as well; its lock is free when that returns.
        gateway.detach(&two.image).ok();
        let new = scratch.file("new", OTHER_KEY);
        add_key(2, &two.image, &two.key, &new).ok();
        assert_same(&two.decrypt(), &data, "what was written");
    }
    // All of the connection is gone: nothing adds up.
    let after = (gateway.files(), threads(&gateway));
    assert!(
        after.0 <= before.0 + 2 && after.1 <= before.1 + 4,
        "{before:?} {after:?}"
    );
    assert_eq!(gateway.exports(), [""]);
    write_all(&gateway.uri(""), &pattern(usize_of(SIZE), 9));
    gateway.stop();
}

#[test]
fn an_attached_image_grows_and_its_snapshot_is_read() {
    let Some(bed) = cluster("an_attached_image_grows_and_its_snapshot_is_read") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let file = container(&scratch, "a.img", Shape::LUKS2);
    let grows = image(bed, &scratch, "grows");
    grows.encrypt(&pattern(usize_of(SIZE), 3));
    bed.rbd(&["snap", "create", "--no-progress", "grows@before"])
        .ok();
    // One that had no image at its start.
    let gateway = Gateway::start(&[&file], &["--allow-connect"]);
    // By a user of its own, whose key is in a keyring with others.
    let [other, own] = ["client.other", "client.own"].map(|user| {
        let made = bed.ceph(&["auth", "get-or-create", user, "mon", "profile rbd"]);
        made.args(["osd", "profile rbd"]).ok().out()
    });
    let keyring = scratch.file("keyring", format!("# all\n{other}\n{own}").as_bytes());
    let options = format!(":id=own:keyring={}", keyring.display());
    let by_user = Container {
        image: format!("{}{options}", grows.image.display()).into(),
        key: grows.key.clone(),
    };
    gateway.attach(&by_user).args(["--export", "g"]).ok();
    assert_confined(&gateway);
    let larger = format!("{}B", SHAPE.data_offset() + 2 * SIZE);
    bed.rbd(&["resize", "--no-progress", "grows", "--size", &larger])
        .ok();
    // The cluster tells the server, whoever has attached it.
    let size = || {
        let status = gateway.status();
        let shown = status.iter().find(|it| it["export"] == "g").unwrap();
        shown["size"].as_u64().unwrap()
    };
    let start = std::time::Instant::now();
    while size() == SIZE {
        assert!(start.elapsed() < PATIENCE, "nobody has told of the growth");
        std::thread::yield_now();
    }
    assert_eq!(size(), 2 * SIZE);
    let resized = gateway.command("resize").arg("g").ok().out();
    assert!(resized.contains("as before"), "{resized}");
    write_all(&gateway.uri("g"), &pattern(usize_of(2 * SIZE), 4));
    let snapshot = Container {
        image: bed.name("grows@before"),
        key: grows.key.clone(),
    };
    let attach = |options: &[&str]| {
        let command = gateway.attach(&snapshot);
        command.args(["--export", "before"]).args(options)
    };
    attach(&[]).fails(2).says(&["never changes", "--read-only"]);
    attach(&["--read-only"]).ok();
    let data = pattern(usize_of(SIZE), 3);
    assert_same(&read_all(&gateway.uri("before")), &data, "in the snapshot");
    // Whoever reads takes no lock.
    assert_same(&snapshot.decrypt(), &data, "in the snapshot");
    gateway.stop();
    let data = pattern(usize_of(2 * SIZE), 4);
    assert_same(&grows.decrypt(), &data, "what was written");
}

#[test]
fn what_cannot_be_attached_leaves_the_image_free() {
    let Some(bed) = cluster("what_cannot_be_attached_leaves_the_image_free") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let [one, two] = ["has", "wants"].map(|name| image(bed, &scratch, name));
    let file = container(&scratch, "a.img", Shape::LUKS2);
    let without = Gateway::start(&[&file], &[]);
    without
        .attach(&two)
        .fails(1)
        .says(&["no connections to a Ceph cluster", "--allow-connect"]);
    without.stop();
    let gateway = Gateway::start(&[&one], &[]);
    let attach = || gateway.attach(&two).args(["--export", "two"]);
    // Another writer has it.
    let server = Server::start(&two);
    attach().fails(5).says(&["open for writing"]);
    server.stop();
    let wrong = scratch.file("wrong", b"wrong");
    gateway
        .command("attach")
        .arg("--key-file")
        .args([&wrong, &two.image])
        .fails(2);
    // What cannot be handed over is said by its name, and nothing of it is tried.
    let with = |option: &str| format!("{}:{option}", two.image.display());
    let command = gateway.command("attach").arg("--key-file").arg(&two.key);
    command
        .arg(with("rbd_cache=true"))
        .fails(4)
        .says(&["does not take the option rbd_cache"]);
    let nobody = scratch.file("keyring", b"[client.admin]\n");
    // The attach itself may not be let in.
    let command = gateway.command("attach").arg("--key-file").arg(&two.key);
    command
        .arg(with(&format!("keyring={}", nobody.display())))
        .fails(2)
        .says(&["does not take this user's key"]);
    attach().ok();
    gateway.detach("two").ok();
    add_key(2, &two.image, &two.key, &two.key).ok();
    gateway.stop();
}

/// The attach of an image as ours sends it, and the key of the cluster's user.
fn request(bed: &Bed, of: &Container, uuid: &str) -> (Attach, Vec<u8>) {
    let conf = std::fs::read_to_string(bed.conf()).unwrap();
    let value = |text: &str, option: &str| {
        let line = text.lines().find(|line| line.trim().starts_with(option));
        let (_, value) = line.unwrap().split_once(" = ").unwrap();
        value.trim().to_owned()
    };
    let keyring = std::fs::read_to_string(value(&conf, "keyring")).unwrap();
    let (_, of_admin) = keyring.split_once("[client.admin]").unwrap();
    let key = value(of_admin, "key").into_bytes();
    let bare = of.image.to_str().unwrap().split(":conf=").next().unwrap();
    let attach = Attach {
        uuid: Some(uuid.to_owned()),
        files: Vec::new(),
        sector_size: 4096,
        offset: SHAPE.data_offset(),
        source: Source::Image {
            name: bare.to_owned(),
            user: "admin".to_owned(),
            settings: vec![("mon_host".to_owned(), value(&conf, "mon host"))],
            secret_length: key.len(),
            has_header: true,
        },
        ..sample("x", of.image.to_str().unwrap(), SIZE)
    };
    (attach, key)
}

fn failure(reply: Option<Reply>) -> String {
    match reply {
        Some(Reply::Failed { message, .. }) => message,
        other => panic!("it is not refused: {other:?}"),
    }
}

#[test]
fn hostile_attaches_of_images_are_refused() {
    let Some(bed) = cluster("hostile_attaches_of_images_are_refused") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let [one, two] = ["mine", "changed"].map(|name| image(bed, &scratch, name));
    let uuid = |of: &Container| {
        let uuid = xtent().arg("uuid").arg(&of.image).ok().out();
        uuid.trim().to_owned()
    };
    let (good, user_key) = request(bed, &two, &uuid(&two));
    let mut gateway = Gateway::start(&[&one], &[]);
    let ask = |attach: &Attach, keys: &[&[u8]]| {
        let bytes = Request::Attach(Box::new(attach.clone()))
            .to_bytes()
            .unwrap();
        said_of_keys(&gateway, &bytes, &[], keys)
    };
    // All is as it was, but for the key: another volume has been made there since.
    let said = failure(ask(&good, &[&[7; 64], &user_key]));
    assert!(said.contains("has changed since"), "{said}");
    let mut other = good.clone();
    other.uuid = Some(uuid(&one));
    let said = failure(ask(&other, &[&[7; 64], &user_key]));
    assert!(said.contains("has changed since"), "{said}");
    for change in [
        (|it| it.offset += 4096) as fn(&mut Attach),
        |it| it.cipher = "aes-cbc-essiv:sha256".into(),
        |it| it.iv_offset = 8,
        |it| it.length *= 2,
    ] {
        let mut other = good.clone();
        change(&mut other);
        let said = failure(ask(&other, &[&[7; 64], &user_key]));
        assert!(said.contains("has changed since"), "{said}");
    }
    let of_source = |change: &dyn Fn(&mut String, &mut Settings)| {
        let mut other = good.clone();
        if let Source::Image { name, settings, .. } = &mut other.source {
            change(name, settings);
        }
        failure(ask(&other, &[&[7; 64], &user_key]))
    };
    let said = of_source(&|_, settings| settings.push(("log_file".into(), "/x".into())));
    assert!(said.contains("log_file"), "{said}");
    let said = of_source(&|name, _| name.push_str(":admin_socket=/x"));
    assert!(said.contains("has options"), "{said}");
    let said = of_source(&|name, _| *name = "/etc/passwd".into());
    assert!(said.contains("/etc/passwd"), "{said}");
    let said = of_source(&|name, _| name.push('x'));
    assert!(said.contains("there is no image"), "{said}");
    // Nobody is there, and nothing tells that.
    let said = of_source(&|_, settings| {
        settings[0].1 = "127.0.0.1:1".into();
        settings.push(("client_mount_timeout".into(), "1".into()));
    });
    assert!(said.contains("127.0.0.1:1"), "{said}");
    // The user's key.
    for key in [&b"AQA="[..], &[0; 40], &[b'A'; 40]] {
        let mut other = good.clone();
        if let Source::Image { secret_length, .. } = &mut other.source {
            *secret_length = key.len();
        }
        failure(ask(&other, &[&[7; 64], key]));
    }
    failure(ask(&good, &[&[7; 64], &user_key[1..]]));
    // One that goes away before it says the key.
    let link = Link::connect(&gateway.control()).unwrap();
    let bytes = Request::Attach(Box::new(good.clone())).to_bytes().unwrap();
    link.send(&bytes, &[]).unwrap();
    link.send(&[7; 64], &[]).unwrap();
    drop(link);
    assert!(gateway.is_running());
    assert_eq!(gateway.exports(), [""]);
    // The image is free, and good.
    gateway.attach(&two).ok();
    gateway.stop();
}

#[test]
fn an_attached_image_that_is_taken_over_takes_no_other_along() {
    let Some(bed) = cluster("an_attached_image_that_is_taken_over_takes_no_other_along") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let [stays, taken, third] = ["stays", "lost", "third"].map(|name| image(bed, &scratch, name));
    let mut gateway = Gateway::start(&[&stays], &[]);
    gateway.attach(&taken).args(["--export", "lost"]).ok();
    gateway.attach(&third).args(["--export", "third"]).ok();
    let mut clients = ["", "third", "lost"].map(|export| gateway.connect(export));
    let locks = bed.rbd(&["lock", "ls", "--format", "json", "lost"]).ok();
    let locks = locks.json();
    let [id, locker] = ["id", "locker"].map(|it| locks[0][it].as_str().unwrap().to_owned());
    bed.rbd(&["lock", "rm", "lost", &id, &locker]).ok();
    let [first, third_client, lost] = &mut clients;
    // It is noticed with the first request; its answer is an error, if it has one.
    lost.request(command::READ, 0, 4096);
    assert!(lost.is_closed(), "it is not parted from");
    for client in [first, third_client] {
        client.request(command::FLUSH, 0, 0);
        assert_eq!(client.reply(), 0);
    }
    for export in ["", "third"] {
        write_all(&gateway.uri(export), &pattern(usize_of(SIZE), 5));
    }
    // It is free for others, for this server too.
    add_key(2, &taken.image, &taken.key, &taken.key).ok();
    assert!(gateway.is_running());
    let ended = gateway.terminate(Signal::TERM);
    assert_eq!(ended.code(), Some(5), "{}", ended.text());
    ended.says(&["lost", "somebody else has taken the volume over"]);
    for container in [&stays, &third] {
        let data = pattern(usize_of(SIZE), 5);
        assert_same(&container.decrypt(), &data, "what was written");
    }
}

#[test]
fn a_configuration_file_to_which_an_image_was_added_is_followed() {
    let Some(bed) = cluster("a_configuration_file_to_which_an_image_was_added_is_followed") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let [one, two] = ["config-one", "config-two"].map(|name| image(bed, &scratch, name));
    let volume = |name: &str, image: &Path| {
        format!("[volume.{name}]\ndevice = {image:?}\nkey-file = \"key\"\n")
    };
    xtent_tests::Cmd::new("/bin/chmod")
        .arg("600")
        .arg(&one.key)
        .ok();
    let first = volume("one", &one.image);
    let config = scratch.file("x.toml", first.as_bytes());
    let serve = xtent().arg("serve").arg("--config").arg(&config);
    let gateway = Gateway::start_by(serve, [] as [&str; 0]);
    let reload = || {
        // What `systemctl reload` does.
        let command = gateway.command("attach").arg("--config").arg(&config);
        command.args(["--prune", "--json"]).ok().json()
    };
    std::fs::write(&config, format!("{first}{}", volume("two", &two.image))).unwrap();
    let done = reload();
    assert_eq!(done["attached"], serde_json::json!(["two"]));
    assert_eq!(done["detached"], serde_json::json!([]));
    assert_eq!(gateway.exports(), ["one", "two"]);
    nbdsh(&gateway.uri("two"), "h.pwrite(b'x' * 4096, 0)\nh.flush()");
    // Both are there by now.
    let again = reload();
    assert_eq!(again["attached"], serde_json::json!([]));
    assert_eq!(again["detached"], serde_json::json!([]));
    std::fs::write(&config, &first).unwrap();
    let done = reload();
    assert_eq!(done["detached"], serde_json::json!(["two"]));
    add_key(2, &two.image, &two.key, &two.key).ok();
    assert_same(&two.decrypt()[..4096], &[b'x'; 4096], "what was written");
    gateway.stop();
}

/// A hostile message that is no image's is refused by a server that has none.
#[test]
fn a_server_without_images_makes_no_connection_to_a_cluster() {
    let scratch = Scratch::new();
    let a = container(&scratch, "a.img", Shape::LUKS2);
    let gateway = Gateway::start(&[&a], &[]);
    let attach = Attach {
        files: Vec::new(),
        source: Source::Image {
            name: "rbd:p/i".to_owned(),
            user: "admin".to_owned(),
            settings: vec![("mon_host".to_owned(), "127.0.0.1:1".to_owned())],
            secret_length: 0,
            has_header: false,
        },
        ..sample("x", "rbd:p/i", SIZE)
    };
    let bytes = Request::Attach(Box::new(attach)).to_bytes().unwrap();
    let text = failure(said(&gateway, &bytes, &[], Some(&[7; 64])));
    assert!(text.contains("no connections to a Ceph cluster"), "{text}");
    gateway.stop();
}
