//! Every S3 operation, one row a line: how it is told apart, what it does, which keys it touches.
//!
//! Source: the S3 service model of API 2006-03-01 (botocore 1.44.8), 111 wire shapes. A test compares
//! the rows with `tests/data/s3-operations.tsv`. What is in no row is refused.

/// A method that S3 operations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `PUT`
    Put,
    /// `POST`
    Post,
    /// `DELETE`
    Delete,
}

/// What the path names, after the bucket of the Host has been taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// The store itself: `/`.
    Service,
    /// A bucket: `/b` or `/b/`.
    Bucket,
    /// An object: `/b/k`.
    Object,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes nothing.
    Read,
    /// Changes one object or what hangs on it.
    Write,
    /// Changes a bucket or its configuration.
    ConfigWrite,
    /// Changes the keys that its body names.
    MultiKeyWrite,
    /// Opens an upload session.
    MultipartOpen,
    /// Adds a part to one.
    MultipartPart,
    /// Makes the parts an object.
    MultipartCommit,
    /// Drops the parts.
    MultipartAbort,
    /// Hands out credentials, or is no storage traffic: refused.
    Session,
}

/// Where the keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// The key of the path.
    PathKey,
    /// The key of the path is written, that of `x-amz-copy-source` read.
    CopySource,
    /// The key of the path is written, that of `x-amz-rename-source` removed.
    RenameSource,
    /// The bucket itself.
    Bucket,
    /// Named in the XML body.
    BodyKeys,
    /// None.
    Nothing,
}

/// What the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None is defined. A store may act on the head alone.
    None,
    /// A control document.
    Xml,
    /// A control document.
    Json,
    /// The object.
    Stream,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in the service model; also the value of `x-id`.
    pub name: &'static str,
    /// An older name of the same wire shape.
    pub alias: Option<&'static str>,
    /// Its method.
    pub verb: Verb,
    /// What its path names.
    pub path: PathKind,
    /// The query names that must all be there, joined by `&`; `name=value` needs that value.
    pub query: &'static str,
    /// The header that must be there; empty for none.
    pub header: &'static str,
    /// What it does.
    pub class: Class,
    /// Where its keys are.
    pub keys: KeyRule,
    /// Its body.
    pub body: Body,
    /// Further query names that are legal on it, joined by `,`.
    pub other_query: &'static str,
}

// === impl Row ===

impl Row {
    /// The query discriminators: name, and the value it needs, if any.
    pub fn discriminators(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        self.query.split('&').filter(|need| !need.is_empty()).map(|need| {
            match need.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (need, None),
            }
        })
    }

    /// Whether `name` is a discriminator of this row or legal on it.
    pub fn allows(&self, name: &str) -> bool {
        self.discriminators().any(|(own, _)| own == name)
            || self.other_query.split(',').any(|own| !own.is_empty() && own == name)
    }

    /// How many discriminators it has.
    pub fn weight(&self) -> usize {
        self.discriminators().count() + usize::from(!self.header.is_empty())
    }

    /// Whether it lists keys, so that what it touches is a prefix.
    pub fn lists_keys(&self) -> bool {
        matches!(self.path, PathKind::Bucket) && self.other_query.split(',').any(|n| n == "prefix")
    }

    const fn alias(mut self, name: &'static str) -> Row {
        self.alias = Some(name);
        self
    }
}

#[expect(clippy::too_many_arguments, reason = "one argument a column keeps the table readable")]
const fn row(
    name: &'static str,
    verb: Verb,
    path: PathKind,
    query: &'static str,
    header: &'static str,
    class: Class,
    keys: KeyRule,
    body: Body,
    other_query: &'static str,
) -> Row {
    Row { name, alias: None, verb, path, query, header, class, keys, body, other_query }
}

const GET: Verb = Verb::Get;
const HEAD: Verb = Verb::Head;
const PUT: Verb = Verb::Put;
const POST: Verb = Verb::Post;
const DELETE: Verb = Verb::Delete;
const SERVICE: PathKind = PathKind::Service;
const BUCKET: PathKind = PathKind::Bucket;
const OBJECT: PathKind = PathKind::Object;
const READ: Class = Class::Read;
const WRITE: Class = Class::Write;
const CONFIG: Class = Class::ConfigWrite;
const BATCH: Class = Class::MultiKeyWrite;
const OPEN: Class = Class::MultipartOpen;
const PART: Class = Class::MultipartPart;
const COMMIT: Class = Class::MultipartCommit;
const ABORT: Class = Class::MultipartAbort;
const SESSION: Class = Class::Session;
const KEY: KeyRule = KeyRule::PathKey;
const COPY: KeyRule = KeyRule::CopySource;
const RENAME: KeyRule = KeyRule::RenameSource;
const BUCKET_KEY: KeyRule = KeyRule::Bucket;
const BODY_KEYS: KeyRule = KeyRule::BodyKeys;
const NOTHING: KeyRule = KeyRule::Nothing;
const NONE: Body = Body::None;
const XML: Body = Body::Xml;
const JSON: Body = Body::Json;
const STREAM: Body = Body::Stream;
const OBJECT_READ: &str = "partNumber,response-cache-control,response-content-disposition,\
                           response-content-encoding,response-content-language,\
                           response-content-type,response-expires,versionId";

/// The table. Order does not matter: the row with most discriminators wins, and no two rows tie.
///
/// Columns: name, method, path, query, header, class, keys, body, other legal query names.
#[rustfmt::skip]
pub static TABLE: &[Row] = &[
    row("UploadPartCopy", PUT, OBJECT, "partNumber&uploadId", "x-amz-copy-source", PART, COPY, NONE, ""),
    row("PutObjectAnnotation", PUT, OBJECT, "annotation&annotationName", "", WRITE, KEY, STREAM, "versionId"),
    row("RenameObject", PUT, OBJECT, "renameObject", "x-amz-rename-source", WRITE, RENAME, NONE, ""),
    row("UploadPart", PUT, OBJECT, "partNumber&uploadId", "", PART, KEY, STREAM, ""),
    row("CopyObject", PUT, OBJECT, "", "x-amz-copy-source", WRITE, COPY, NONE, ""),
    row("PutObjectAcl", PUT, OBJECT, "acl", "", WRITE, KEY, XML, "versionId"),
    row("PutObjectLegalHold", PUT, OBJECT, "legal-hold", "", WRITE, KEY, XML, "versionId"),
    row("PutObjectRetention", PUT, OBJECT, "retention", "", WRITE, KEY, XML, "versionId"),
    row("PutObjectTagging", PUT, OBJECT, "tagging", "", WRITE, KEY, XML, "versionId"),
    row("UpdateObjectEncryption", PUT, OBJECT, "encryption", "", WRITE, KEY, XML, "versionId"),
    row("PutObject", PUT, OBJECT, "", "", WRITE, KEY, STREAM, ""),
    row("SelectObjectContent", POST, OBJECT, "select&select-type=2", "", READ, KEY, XML, ""),
    row("CompleteMultipartUpload", POST, OBJECT, "uploadId", "", COMMIT, KEY, XML, ""),
    row("CreateMultipartUpload", POST, OBJECT, "uploads", "", OPEN, KEY, NONE, ""),
    row("RestoreObject", POST, OBJECT, "restore", "", WRITE, KEY, XML, "versionId"),
    row("DeleteObjectAnnotation", DELETE, OBJECT, "annotation&annotationName", "", WRITE, KEY, NONE, "versionId"),
    row("AbortMultipartUpload", DELETE, OBJECT, "uploadId", "", ABORT, KEY, NONE, ""),
    row("DeleteObjectTagging", DELETE, OBJECT, "tagging", "", WRITE, KEY, NONE, "versionId"),
    row("DeleteObject", DELETE, OBJECT, "", "", WRITE, KEY, NONE, "versionId"),
    row("GetObjectAnnotation", GET, OBJECT, "annotation&annotationName", "", READ, KEY, NONE, "versionId"),
    row("GetObjectAcl", GET, OBJECT, "acl", "", READ, KEY, NONE, "versionId"),
    row("GetObjectAttributes", GET, OBJECT, "attributes", "", READ, KEY, NONE, "versionId"),
    row("GetObjectLegalHold", GET, OBJECT, "legal-hold", "", READ, KEY, NONE, "versionId"),
    row("GetObjectRetention", GET, OBJECT, "retention", "", READ, KEY, NONE, "versionId"),
    row("GetObjectTagging", GET, OBJECT, "tagging", "", READ, KEY, NONE, "versionId"),
    row("GetObjectTorrent", GET, OBJECT, "torrent", "", READ, KEY, NONE, ""),
    row("ListObjectAnnotations", GET, OBJECT, "annotation", "", READ, KEY, NONE, "annotation-prefix,continuation-token,max-annotation-results,versionId"),
    row("ListParts", GET, OBJECT, "uploadId", "", READ, KEY, NONE, "max-parts,part-number-marker"),
    row("GetObject", GET, OBJECT, "", "", READ, KEY, NONE, OBJECT_READ),
    row("HeadObject", HEAD, OBJECT, "", "", READ, KEY, NONE, OBJECT_READ),
    row("PutBucketAnalyticsConfiguration", PUT, BUCKET, "analytics&id", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketIntelligentTieringConfiguration", PUT, BUCKET, "intelligent-tiering&id", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketInventoryConfiguration", PUT, BUCKET, "inventory&id", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketMetricsConfiguration", PUT, BUCKET, "metrics&id", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketAbac", PUT, BUCKET, "abac", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketAccelerateConfiguration", PUT, BUCKET, "accelerate", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketAcl", PUT, BUCKET, "acl", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketCors", PUT, BUCKET, "cors", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketEncryption", PUT, BUCKET, "encryption", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketLifecycleConfiguration", PUT, BUCKET, "lifecycle", "", CONFIG, BUCKET_KEY, XML, "").alias("PutBucketLifecycle"),
    row("PutBucketLogging", PUT, BUCKET, "logging", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketNotificationConfiguration", PUT, BUCKET, "notification", "", CONFIG, BUCKET_KEY, XML, "").alias("PutBucketNotification"),
    row("PutBucketOwnershipControls", PUT, BUCKET, "ownershipControls", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketPolicy", PUT, BUCKET, "policy", "", CONFIG, BUCKET_KEY, JSON, ""),
    row("PutBucketReplication", PUT, BUCKET, "replication", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketRequestPayment", PUT, BUCKET, "requestPayment", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketTagging", PUT, BUCKET, "tagging", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketVersioning", PUT, BUCKET, "versioning", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutBucketWebsite", PUT, BUCKET, "website", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutObjectLockConfiguration", PUT, BUCKET, "object-lock", "", CONFIG, BUCKET_KEY, XML, ""),
    row("PutPublicAccessBlock", PUT, BUCKET, "publicAccessBlock", "", CONFIG, BUCKET_KEY, XML, ""),
    row("UpdateBucketMetadataAnnotationTableConfiguration", PUT, BUCKET, "metadataAnnotationTable", "", CONFIG, BUCKET_KEY, XML, ""),
    row("UpdateBucketMetadataInventoryTableConfiguration", PUT, BUCKET, "metadataInventoryTable", "", CONFIG, BUCKET_KEY, XML, ""),
    row("UpdateBucketMetadataJournalTableConfiguration", PUT, BUCKET, "metadataJournalTable", "", CONFIG, BUCKET_KEY, XML, ""),
    row("CreateBucket", PUT, BUCKET, "", "", CONFIG, BUCKET_KEY, XML, ""),
    row("CreateBucketMetadataConfiguration", POST, BUCKET, "metadataConfiguration", "", CONFIG, BUCKET_KEY, XML, ""),
    row("CreateBucketMetadataTableConfiguration", POST, BUCKET, "metadataTable", "", CONFIG, BUCKET_KEY, XML, ""),
    row("DeleteObjects", POST, BUCKET, "delete", "", BATCH, BODY_KEYS, XML, ""),
    row("DeleteBucketAnalyticsConfiguration", DELETE, BUCKET, "analytics&id", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketIntelligentTieringConfiguration", DELETE, BUCKET, "intelligent-tiering&id", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketInventoryConfiguration", DELETE, BUCKET, "inventory&id", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketMetricsConfiguration", DELETE, BUCKET, "metrics&id", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketCors", DELETE, BUCKET, "cors", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketEncryption", DELETE, BUCKET, "encryption", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketLifecycle", DELETE, BUCKET, "lifecycle", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketMetadataConfiguration", DELETE, BUCKET, "metadataConfiguration", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketMetadataTableConfiguration", DELETE, BUCKET, "metadataTable", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketOwnershipControls", DELETE, BUCKET, "ownershipControls", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketPolicy", DELETE, BUCKET, "policy", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketReplication", DELETE, BUCKET, "replication", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketTagging", DELETE, BUCKET, "tagging", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucketWebsite", DELETE, BUCKET, "website", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeletePublicAccessBlock", DELETE, BUCKET, "publicAccessBlock", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("DeleteBucket", DELETE, BUCKET, "", "", CONFIG, BUCKET_KEY, NONE, ""),
    row("GetBucketAnalyticsConfiguration", GET, BUCKET, "analytics&id", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketIntelligentTieringConfiguration", GET, BUCKET, "intelligent-tiering&id", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketInventoryConfiguration", GET, BUCKET, "inventory&id", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketMetricsConfiguration", GET, BUCKET, "metrics&id", "", READ, BUCKET_KEY, NONE, ""),
    row("CreateSession", GET, BUCKET, "session", "", SESSION, BUCKET_KEY, NONE, ""),
    row("GetBucketAbac", GET, BUCKET, "abac", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketAccelerateConfiguration", GET, BUCKET, "accelerate", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketAcl", GET, BUCKET, "acl", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketCors", GET, BUCKET, "cors", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketEncryption", GET, BUCKET, "encryption", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketLifecycleConfiguration", GET, BUCKET, "lifecycle", "", READ, BUCKET_KEY, NONE, "").alias("GetBucketLifecycle"),
    row("GetBucketLocation", GET, BUCKET, "location", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketLogging", GET, BUCKET, "logging", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketMetadataConfiguration", GET, BUCKET, "metadataConfiguration", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketMetadataTableConfiguration", GET, BUCKET, "metadataTable", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketNotificationConfiguration", GET, BUCKET, "notification", "", READ, BUCKET_KEY, NONE, "").alias("GetBucketNotification"),
    row("GetBucketOwnershipControls", GET, BUCKET, "ownershipControls", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketPolicy", GET, BUCKET, "policy", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketPolicyStatus", GET, BUCKET, "policyStatus", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketReplication", GET, BUCKET, "replication", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketRequestPayment", GET, BUCKET, "requestPayment", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketTagging", GET, BUCKET, "tagging", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketVersioning", GET, BUCKET, "versioning", "", READ, BUCKET_KEY, NONE, ""),
    row("GetBucketWebsite", GET, BUCKET, "website", "", READ, BUCKET_KEY, NONE, ""),
    row("GetObjectLockConfiguration", GET, BUCKET, "object-lock", "", READ, BUCKET_KEY, NONE, ""),
    row("GetPublicAccessBlock", GET, BUCKET, "publicAccessBlock", "", READ, BUCKET_KEY, NONE, ""),
    row("ListBucketAnalyticsConfigurations", GET, BUCKET, "analytics", "", READ, BUCKET_KEY, NONE, "continuation-token"),
    row("ListBucketIntelligentTieringConfigurations", GET, BUCKET, "intelligent-tiering", "", READ, BUCKET_KEY, NONE, "continuation-token"),
    row("ListBucketInventoryConfigurations", GET, BUCKET, "inventory", "", READ, BUCKET_KEY, NONE, "continuation-token"),
    row("ListBucketMetricsConfigurations", GET, BUCKET, "metrics", "", READ, BUCKET_KEY, NONE, "continuation-token"),
    row("ListMultipartUploads", GET, BUCKET, "uploads", "", READ, BUCKET_KEY, NONE, "delimiter,encoding-type,key-marker,max-uploads,prefix,upload-id-marker"),
    row("ListObjectVersions", GET, BUCKET, "versions", "", READ, BUCKET_KEY, NONE, "delimiter,encoding-type,key-marker,max-keys,prefix,version-id-marker"),
    row("ListObjectsV2", GET, BUCKET, "list-type=2", "", READ, BUCKET_KEY, NONE, "continuation-token,delimiter,encoding-type,fetch-owner,max-keys,prefix,start-after"),
    row("ListObjects", GET, BUCKET, "", "", READ, BUCKET_KEY, NONE, "delimiter,encoding-type,marker,max-keys,prefix"),
    row("HeadBucket", HEAD, BUCKET, "", "", READ, BUCKET_KEY, NONE, ""),
    row("WriteGetObjectResponse", POST, SERVICE, "", "", SESSION, NOTHING, STREAM, ""),
    row("ListBuckets", GET, SERVICE, "", "", READ, NOTHING, NONE, "bucket-region,continuation-token,max-buckets,max-directory-buckets,prefix").alias("ListDirectoryBuckets"),
];
