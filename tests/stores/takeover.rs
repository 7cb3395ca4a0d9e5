//! Who may write after a takeover: puts, deletes, batches, uploads in parts, copies.

use nix::sys::signal::Signal;

use super::Site;
use crate::support::clients::{Curl, awscli_fenced, boto3, boto3_process, stdout_of};
use crate::support::stores::{self, Store};

/// Runs a call of boto3 that must fail, and gives its code.
const CODE_OF: &str = r#"
def code_of(call):
    try:
        call()
        return 'done'
    except ClientError as error:
        answer = error.response
        return '%s %s' % (answer['ResponseMetadata']['HTTPStatusCode'], answer['Error']['Code'])
bucket = sys.argv[1]
"#;

fn python(site: &Site, token: u64, code: &str, args: &[&str]) -> String {
    let code = format!("{CODE_OF}\n{code}");
    let args = [&[site.bucket.as_str()], args].concat();
    stdout_of(&boto3(&site.gate.url(), Some(token), &code, &args))
}

/// T1: a writer is stopped beyond its TTL, its successor writes, it wakes up and writes.
fn a_writer_that_slept_past_its_ttl_is_refused(store: Option<&'static Store>) {
    let Some(store) = store else { return };
    let site = Site::new(store);
    let a = site.gate.acquire("wal/main", "a", "1s");
    let code = format!(
        "{CODE_OF}
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(code_of(lambda: s3.put_object(Bucket=bucket, Key='segment', Body=b'first')), flush=True)
signal.sigwait([signal.SIGUSR1])
print('woke: ' + code_of(lambda: s3.put_object(Bucket=bucket, Key='segment', Body=b'late')))"
    );
    let writer = boto3_process(&site.gate.url(), Some(a), &code, &[&site.bucket]);
    writer.wait_line("the first write", |line| line == "done");
    writer.signal(Signal::SIGSTOP);
    let b = ["lease", "acquire", "wal/main", "--holder", "b", "--wait", "30s"];
    let b: u64 = stdout_of(&site.gate.cli(&b)).parse().unwrap();
    let body: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    assert_eq!(site.put("segment", b, &body).status, 200);
    writer.signal(Signal::SIGUSR1);
    writer.signal(Signal::SIGCONT);
    let seen = writer.wait_line("the late write", |line| line.starts_with("woke"));
    assert_eq!(seen, "woke: 412 StaleFencingToken");
    assert!(site.stored("segment") == Some(body), "{}: not the successor's bytes", store.name);
}

#[test]
fn a_writer_that_slept_past_its_ttl_is_refused_on_seaweedfs() {
    a_writer_that_slept_past_its_ttl_is_refused(stores::seaweedfs());
}

#[test]
fn a_writer_that_slept_past_its_ttl_is_refused_on_moto() {
    a_writer_that_slept_past_its_ttl_is_refused(stores::moto());
}

#[test]
fn a_writer_that_slept_past_its_ttl_is_refused_on_nanio() {
    a_writer_that_slept_past_its_ttl_is_refused(stores::nanio());
}

/// T2: the lease has moved and its new holder has not written yet; every client is refused.
#[test]
fn the_old_holder_is_refused_before_the_new_one_has_written() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        let (a, b) = site.taken_over();
        let seen = site.put("by-curl", a, b"stale");
        assert_eq!((seen.status, seen.code().as_deref()), (412, Some("StaleFencingToken")));
        assert_eq!(seen.header("fencing-token"), None);
        assert_eq!(seen.header("fencing-resource"), Some("wal/main"));
        let code =
            "print(code_of(lambda: s3.put_object(Bucket=bucket, Key='by-boto3', Body=b's')))";
        assert_eq!(python(&site, a, code, &[]), "412 StaleFencingToken", "{}", store.name);
        let file = site.gate.config_path();
        let target = format!("s3://{}/by-awscli", site.bucket);
        let copy = ["s3", "cp", file.to_str().unwrap(), &target];
        let output = awscli_fenced(&site.gate.url(), a, &copy);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("(StaleFencingToken)") && said.contains("stop it"), "{said}");
        for key in ["by-curl", "by-boto3", "by-awscli"] {
            assert_eq!(site.stored(key), None, "{}: {key}", store.name);
        }
        stdout_of(&awscli_fenced(&site.gate.url(), b, &copy));
        assert_eq!(site.stored("by-awscli"), Some(std::fs::read(&file).unwrap()));
    }
}

/// T6: single deletes and batches.
#[test]
fn a_refused_delete_or_batch_deletes_nothing() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        let keys = ["one", "two", "other/three", "public/four"];
        for key in keys {
            store.put_object(&site.bucket, key, b"kept");
        }
        let (a, b) = site.taken_over();
        let seen = Curl::delete(&site.url("one")).token(a).send();
        assert_eq!((seen.status, seen.code().as_deref()), (412, Some("StaleFencingToken")));
        assert_eq!(Curl::delete(&site.url("one")).send().status, 428);
        let batch = "print(code_of(lambda: s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': k} for k in sys.argv[2:]]})))";
        let cases: [(u64, &[&str], &str); 4] = [
            (a, &["one", "two"], "412 StaleFencingToken"),
            (b, &["one", "other/three"], "400 MultipleResources"),
            (b, &["public/four", "one"], "400 MultipleResources"),
            (a, &["one", "absent"], "412 StaleFencingToken"),
        ];
        for (token, keys, want) in cases {
            assert_eq!(python(&site, token, batch, keys), want, "{}: {keys:?}", store.name);
        }
        for key in keys {
            assert_eq!(site.stored(key).as_deref(), Some(&b"kept"[..]), "{}: {key}", store.name);
        }
        assert_eq!(python(&site, b, batch, &["one", "two"]), "done", "{}", store.name);
        assert_eq!((site.stored("one"), site.stored("two")), (None, None), "{}", store.name);
        assert!(site.stored("other/three").is_some(), "{}", store.name);
    }
}

/// T5: every step of an upload in parts is a write.
#[test]
fn a_stale_holder_can_neither_add_to_nor_complete_nor_abort_an_upload_in_parts() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        let a = site.gate.acquire("wal/main", "a", "60s");
        let begin = r#"
up = s3.create_multipart_upload(Bucket=bucket, Key='segment')['UploadId']
etag = s3.upload_part(Bucket=bucket, Key='segment', UploadId=up, PartNumber=1, Body=b'p' * (5 << 20))['ETag']
print(up, etag)"#;
        let begun = python(&site, a, begin, &[]);
        let (upload, etag) = begun.split_once(' ').unwrap();
        let b = site.gate.hand_over("wal/main", a, "b");
        let go_on = r#"
up, etag = sys.argv[2:]
one = dict(Bucket=bucket, Key='segment', UploadId=up)
print(code_of(lambda: s3.upload_part(**one, PartNumber=2, Body=b'stale')))
print(code_of(lambda: s3.complete_multipart_upload(**one, MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': etag}]})))
print(code_of(lambda: s3.abort_multipart_upload(**one)))
print(code_of(lambda: s3.create_multipart_upload(Bucket=bucket, Key='segment')))"#;
        let refused = ["412 StaleFencingToken"; 4].join("\n");
        assert_eq!(python(&site, a, go_on, &[upload, etag]), refused, "{}", store.name);
        assert_eq!(site.stored("segment"), None, "{}", store.name);
        assert_eq!(site.put("segment", b, b"successor").status, 200);
        assert_eq!(python(&site, a, go_on, &[upload, etag]), refused, "{}", store.name);
        assert_eq!(site.stored("segment").as_deref(), Some(&b"successor"[..]), "{}", store.name);
        // Nothing was aborted: the upload is still there for its new owner.
        let finish = r#"
up, etag = sys.argv[2:]
s3.complete_multipart_upload(Bucket=bucket, Key='segment', UploadId=up, MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': etag}]})"#;
        python(&site, b, finish, &[upload, etag]);
        assert!(site.stored("segment") == Some(vec![b'p'; 5 << 20]), "{}", store.name);
    }
}

#[test]
fn an_upload_in_parts_lives_its_whole_life_under_a_good_token() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        let token = site.gate.acquire("wal/main", "a", "60s");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("large");
        let body: Vec<u8> =
            (0..20_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&file, &body).unwrap();
        let code = r#"
s3.upload_file(sys.argv[2], bucket, 'by boto3')
up = s3.create_multipart_upload(Bucket=bucket, Key='gone')['UploadId']
s3.upload_part(Bucket=bucket, Key='gone', UploadId=up, PartNumber=1, Body=b'x')
s3.abort_multipart_upload(Bucket=bucket, Key='gone', UploadId=up)
print([u['Key'] for u in s3.list_multipart_uploads(Bucket=bucket).get('Uploads', [])])"#;
        let file = file.to_str().unwrap();
        assert_eq!(python(&site, token, code, &[file]), "[]", "{}", store.name);
        let target = format!("s3://{}/by-awscli", site.bucket);
        stdout_of(&awscli_fenced(&site.gate.url(), token, &["s3", "cp", file, &target]));
        for key in ["by%20boto3", "by-awscli"] {
            assert!(site.stored(key).as_ref() == Some(&body), "{}: {key}", store.name);
        }
    }
}

/// T7: a copy is a write of its destination.
#[test]
fn the_destination_of_a_copy_decides_which_token_it_needs() {
    for store in [stores::seaweedfs(), stores::moto(), stores::nanio()].into_iter().flatten() {
        let site = Site::new(store);
        for key in ["public/a", "other/a", "a"] {
            store.put_object(&site.bucket, key, key.as_bytes());
        }
        let other = site.gate.acquire("other/main", "o", "60s");
        let (stale, good) = site.taken_over();
        let copy = |from: &str, to: &str, token: Option<u64>| {
            let source = format!("/{}/{from}", site.bucket);
            let put = Curl::put(&site.url(to)).header("x-amz-copy-source", &source);
            let answer = token.map_or(put.clone(), |token| put.token(token)).send();
            (answer.status, answer.code().unwrap_or_default())
        };
        let no = |status, code: &str| (status, code.to_owned());
        assert_eq!(copy("public/a", "b", None), no(428, "MissingFencingToken"));
        assert_eq!(copy("other/a", "b", Some(stale)), no(412, "StaleFencingToken"));
        assert!(matches!(copy("other/a", "b", Some(other)).0, 403 | 412));
        assert_eq!(site.stored("b"), None, "{}", store.name);
        assert_eq!(copy("other/a", "b", Some(good)), no(200, ""), "{}", store.name);
        assert_eq!(site.stored("b").as_deref(), Some(&b"other/a"[..]), "{}", store.name);
        assert_eq!(copy("a", "public/b", None), no(200, ""), "{}", store.name);
        assert_eq!(copy("a", "other/b", Some(other)), no(200, ""), "{}", store.name);
        if store.name == "nanio" {
            // It takes a copy of a part for an upload of an empty one.
            continue;
        }
        let part = r#"
up = s3.create_multipart_upload(Bucket=bucket, Key='c')['UploadId']
source = {'Bucket': bucket, 'Key': 'other/a'}
one = dict(Bucket=bucket, Key='c', UploadId=up, PartNumber=1, CopySource=source)
stale = client(sys.argv[2])
print(code_of(lambda: stale.upload_part_copy(**one)))
print(code_of(lambda: client().upload_part_copy(**one)))
etag = s3.upload_part_copy(**one)['CopyPartResult']['ETag']
s3.complete_multipart_upload(Bucket=bucket, Key='c', UploadId=up, MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': etag}]})"#;
        let stale = stale.to_string();
        let want = "412 StaleFencingToken\n428 MissingFencingToken";
        assert_eq!(python(&site, good, part, &[&stale]), want, "{}", store.name);
        assert_eq!(site.stored("c").as_deref(), Some(&b"other/a"[..]), "{}", store.name);
    }
}
