//! Holds a private containerd until it is killed, for tests of what happens
//! to a node whose owner ends. Prints the node's identity when it is up.
#![expect(
    clippy::print_stdout,
    reason = "the identity goes to the test that started this"
)]

use test_support::{ContainerdOptions, PrivateContainerd};

fn main() -> anyhow::Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions {
        images: false,
        ..ContainerdOptions::default()
    })?;
    println!("{}", containerd.node().identity());
    loop {
        std::thread::park();
    }
}
