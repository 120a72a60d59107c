//! What Go 1.19 sends: each line was made by a program that does with a path what a kubelet
//! does, and a server that wrote down the first line of its request.

use super::*;

#[test]
fn a_request_asks_for_what_a_kubelets_asks_for() {
    for (path, target) in [
        ("", "/"),
        ("healthz", "/healthz"),
        ("/healthz", "/healthz"),
        ("../x", "/../x"),
        ("/a/../b", "/a/../b"),
        ("/a//b", "/a//b"),
        ("x y", "/x%20y"),
        (" /x", "/%20/x"),
        ("*", "/*"),
        // Whole URLs.
        ("http://localhost:8080/healthz", "/healthz"),
        ("https://other/x?y=1", "/x?y=1"),
        ("HTTP://localhost/healthz", "/healthz"),
        ("mailto://a/b", "/b"),
        ("http://h", "/"),
        ("http://h?x", "/?x"),
        ("http://", "/"),
        ("http:", "/"),
        ("http:///y", "/y"),
        ("http://u:p@h/x", "/x"),
        ("http://h/x y", "/x%20y"),
        // A host without a scheme.
        ("//x/y", "/y"),
        ("//", "/"),
        ("//@/x", "/x"),
        ("//h:/x", "/x"),
        ("//h?x/y", "/?x/y"),
        ("//h#x/y", "/"),
        ("//<a>/x", "/x"),
        ("//[::1]/x", "/x"),
        ("//h%c3%a9/x", "/x"),
        ("///y", "///y"),
        ("////y", "////y"),
        // What is no host, port or user, and so no URL.
        ("http://h:port/x", "/http://h:port/x"),
        ("//h:port/x", "//h:port/x"),
        ("//h:8080x/y", "//h:8080x/y"),
        ("//a:b:c/x", "//a:b:c/x"),
        ("//a b/x", "//a%20b/x"),
        ("//a|b/x", "//a%7Cb/x"),
        ("//[::1/x", "//%5B::1/x"),
        ("//h%41/x", "//h%2541/x"),
        ("//u u@h/x", "//u%20u@h/x"),
        ("//u%zz@h/x", "//u%25zz@h/x"),
        // Colons.
        (":8080/x", "/:8080/x"),
        ("127.0.0.1:80/x", "/127.0.0.1:80/x"),
        ("1a:b", "/1a:b"),
        ("a/b:c", "/a/b:c"),
        ("./a:b", "/./a:b"),
        ("/a:b", "/a:b"),
        // Encodings of a path.
        ("/a|b", "/a%7Cb"),
        ("/a b", "/a%20b"),
        ("/a%20b", "/a%20b"),
        ("/é", "/%C3%A9"),
        ("/%C3%A9", "/%C3%A9"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%2fb|", "/a/b%7C"),
        ("/%7e", "/%7e"),
        ("/%41|", "/A%7C"),
        ("/%ff", "/%ff"),
        ("/%ff|", "/%FF%7C"),
        ("/%00", "/%00"),
        ("/(a)", "/(a)"),
        ("/(a)|", "/%28a%29%7C"),
        ("/!$&'()*+,;=:@[]", "/!$&'()*+,;=:@[]"),
        ("/!$&'()*+,;=:@[]|", "/%21$&%27%28%29%2A+,;=:@%5B%5D%7C"),
        ("/a\"b<c>d\\e^f`g{h}i", "/a%22b%3Cc%3Ed%5Ce%5Ef%60g%7Bh%7Di"),
        // What encodes nothing is a path as it stands, its marks included.
        ("/%zz", "/%25zz"),
        ("/%4", "/%254"),
        ("/%", "/%25"),
        ("/%zz?x=1#f", "/%25zz%3Fx=1%23f"),
        ("//h/%zz", "//h/%25zz"),
        ("/x#%zz", "/x%23%25zz"),
        ("/x\r\nHost: evil", "/x%0D%0AHost:%20evil"),
        ("/x?a\nb", "/x%3Fa%0Ab"),
        ("/x\u{7f}", "/x%7F"),
        // Queries.
        ("?", "/?"),
        ("?x", "/?x"),
        ("/x?", "/x?"),
        ("/x??", "/x??"),
        ("/x?a?b", "/x?a?b"),
        ("/x?%zz", "/x?%zz"),
        ("/x?a=%", "/x?a=%"),
        ("/x?é", "/x?é"),
        ("/x?a|b\\c^d`e{f}g", "/x?a|b\\c^d`e{f}g"),
        // Fragments.
        ("#f", "/"),
        ("/x#a b", "/x"),
        ("/x?a=1#f?g", "/x?a=1"),
    ] {
        assert_eq!(of_get(path).as_deref(), Some(target), "{path:?}");
        assert!(target.parse::<http::uri::PathAndQuery>().is_ok(), "{path}");
    }
}

#[test]
fn a_url_that_asks_no_host_asks_for_nothing() {
    for path in ["http:x", "mailto:a@b", "localhost:8080/healthz", "a:b"] {
        assert_eq!(of_get(path), None, "{path}");
    }
}

/// Go sends each of them as it is, and most servers then refuse the request.
#[test]
fn what_cannot_stand_in_a_request_is_encoded_in_a_query() {
    for (path, target) in [
        ("/x?a b", "/x?a%20b"),
        ("/x? ", "/x?%20"),
        ("/x?\"<>", "/x?%22%3C%3E"),
    ] {
        assert_eq!(of_get(path).as_deref(), Some(target), "{path:?}");
        assert!(target.parse::<http::uri::PathAndQuery>().is_ok(), "{path}");
    }
}
