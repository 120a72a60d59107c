//! Ports as they are typed. Pure.

use std::str::FromStr;

/// From which port to which; 0 is any that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) local: u16,
    pub(crate) remote: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let port = |text: &str| text.parse().ok().filter(|&port: &u16| port != 0);
        let ports = match text.split_once(':') {
            None => port(text).map(|port| (port, port)),
            Some(("" | "0", remote)) => port(remote).map(|remote| (0, remote)),
            Some((local, remote)) => port(local).zip(port(remote)),
        };
        let (local, remote) =
            ports.ok_or_else(|| format!("{text:?} is not a port like 80, 8080:80 or :80"))?;
        Ok(Ports { local, remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_as_kubectl_has_them() {
        for (text, expected) in [
            ("80", Some((80, 80))),
            ("8080:80", Some((8080, 80))),
            (":80", Some((0, 80))),
            ("0:80", Some((0, 80))),
            ("80:", None),
            ("0", None),
            ("80:0", None),
            ("65536", None),
            ("a:80", None),
            ("1:2:3", None),
            ("", None),
        ] {
            let ports = text.parse::<Ports>().ok();
            let ports = ports.map(|Ports { local, remote }| (local, remote));
            assert_eq!(ports, expected, "{text}");
        }
    }
}
