//! Operations that a store executes and a fence could overlook: renames, forms, presigned URLs, sub-resources.

use super::Site;
use crate::support::clients::{Curl, boto3, stdout_of};
use crate::support::signed::{Shape, Signed};
use crate::support::stores;

/// Method, target, headers, body; the statuses that will do.
type Case<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], &'c str, &'c [u16]);

/// Sent without a token, or with an open key in front: each is refused by the gate, not by the store.
#[test]
fn no_operation_on_a_fenced_key_passes_without_a_token() {
    let form = "--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nsegment\r\n--x--\r\n";
    let batch = "<Delete><Object><Key>segment</Key></Object></Delete>";
    let copied = "x-amz-copy-source=%2FBUCKET%2Fsegment";
    let copied = format!("/BUCKET/public/b?{copied}");
    let cases: &[Case<'_>] = &[
        (
            "PUT",
            "/BUCKET/public/b?renameObject=",
            &[("x-amz-rename-source", "/BUCKET/segment")],
            "",
            &[400],
        ),
        (
            "PUT",
            "/BUCKET/public/b?renameObject=",
            &[("x-amz-rename-source", "segment")],
            "",
            &[400],
        ),
        ("PUT", &copied, &[], "", &[400]),
        ("POST", "/BUCKET/segment?delete=", &[], batch, &[400, 501]),
        ("POST", "/BUCKET/public/b?delete=", &[], batch, &[400, 501]),
        ("POST", "/BUCKET?delete=", &[], batch, &[428]),
        (
            "POST",
            "/BUCKET",
            &[("content-type", "multipart/form-data; boundary=x")],
            form,
            &[400, 501],
        ),
        ("PUT", "/BUCKET/segment?tagging=", &[], "<Tagging/>", &[428]),
        ("DELETE", "/BUCKET/segment?tagging=", &[], "", &[428]),
        ("PUT", "/BUCKET/segment?acl=", &[], "", &[428]),
        ("PUT", "/BUCKET/segment?retention=", &[], "<Retention/>", &[428]),
        ("PUT", "/BUCKET/segment?legal-hold=", &[], "<LegalHold/>", &[428]),
        ("POST", "/BUCKET/segment?uploads=", &[], "", &[428]),
        ("PUT", "/BUCKET/segment?partNumber=1&uploadId=u", &[], "part", &[428]),
        ("POST", "/BUCKET/segment?uploadId=u", &[], "<CompleteMultipartUpload/>", &[428]),
        ("DELETE", "/BUCKET/segment?uploadId=u", &[], "", &[428]),
        ("DELETE", "/BUCKET/segment?versionId=null", &[], "", &[428]),
        ("PUT", "/BUCKET/public/b?partNumber=1", &[], "part", &[400]),
        ("PUT", "/BUCKET/public/b?uploads=", &[], "", &[400, 501]),
        ("PUT", "/BUCKET/public/b?unheard-of=", &[], "", &[400]),
        ("PUT", "/BUCKET?policy=", &[], "{}", &[403]),
        ("PUT", "/BUCKET?versioning=", &[], "<VersioningConfiguration/>", &[403]),
        ("PUT", "/BUCKET?lifecycle=", &[], "<LifecycleConfiguration/>", &[403]),
        ("DELETE", "/BUCKET", &[], "", &[403]),
        ("GET", "/BUCKET/segment", &[("x-http-method-override", "DELETE")], "", &[400]),
        ("POST", "/BUCKET/segment?_method=DELETE", &[], "", &[400]),
        ("POST", "/BUCKET/segment", &[("x-http-method", "PUT")], "", &[400]),
        ("PATCH", "/BUCKET/segment", &[], "", &[501]),
        ("PUT", "/BUCKET/public/b?x-id=DeleteObject", &[], "", &[400]),
    ];
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        store.put_object(&site.bucket, "segment", b"kept");
        let host = site.gate.address().to_string();
        let named = |text: &str| text.replace("BUCKET", &site.bucket);
        for (method, target, headers, body, wanted) in cases {
            let ask =
                Signed::new(method, &named(target), &host).body(Shape::Plain, body.as_bytes());
            let ask =
                headers.iter().fold(ask, |ask, (name, value)| ask.header(name, &named(value)));
            let seen = ask.send(site.gate.address());
            assert!(wanted.contains(&seen.status), "{method} {target}: {seen:?}\n{}", seen.text());
            let by_gate = seen.header("x-fencegate-request-id").is_some();
            assert!(by_gate, "{method} {target}: {}", seen.text());
        }
        assert_eq!(site.stored("segment").as_deref(), Some(&b"kept"[..]), "{}", store.name);
        assert_eq!(site.stored("public/b"), None, "{}", store.name);
    }
}

#[test]
fn a_presigned_url_needs_a_token_beside_it() {
    let Some(store) = stores::seaweedfs() else { return };
    let site = Site::new(store);
    let (stale, good) = site.taken_over();
    let code = "
made = client(None, signature_version=sys.argv[2])
print(made.generate_presigned_url('put_object', Params={'Bucket': sys.argv[1], 'Key': 'a b'}))";
    let url =
        |version: &str| stdout_of(&boto3(&site.gate.url(), None, code, &[&site.bucket, version]));
    let put = Curl::put(&url("s3v4")).unsigned().header("Content-Type", "").body(b"presigned");
    assert_eq!(put.send().status, 428);
    assert_eq!(put.clone().token(stale).send().status, 412);
    assert_eq!(site.stored("a%20b"), None);
    let seen = put.token(good).send();
    assert_eq!(seen.status, 200, "{}", seen.text());
    assert_eq!(site.stored("a%20b").as_deref(), Some(&b"presigned"[..]));
    // What a SigV2 signature covers depends on who reads it.
    let old = Curl::put(&url("s3")).unsigned().header("Content-Type", "").token(good).body(b"old");
    let seen = old.send();
    assert_eq!((seen.status, seen.code().as_deref()), (400, Some("InvalidRequest")));
    assert!(seen.text().contains("sign with version 4"), "{}", seen.text());
}
