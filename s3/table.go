package s3

import "net/http"

// level says what an operation is about.
type level uint8

const (
	onService level = iota
	onBucket
	onObject

	numLevels
)

// operation is a row of the table. Rows of one level and method are tried in order and the first that matches wins, so
// the general ones stand last.
type operation struct {
	name   string
	method string
	level  level
	query  string // sub-resources that must be there, separated by spaces
	header string // header that must be there
	params string // further query parameters it understands, separated by spaces
	action string // IAM action
	body   bool   // it takes a body
	handle func(*request) error
	note   string // for the matrix
}

const (
	listParams     = "prefix delimiter max-keys encoding-type"
	responseParams = "response-content-type response-content-language response-expires response-cache-control response-content-disposition response-content-encoding"
)

// operations is every S3 operation there is (https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html).
// Rows without a handler answer 501 with their name.
func operations() []operation {
	const get, head, put, post, del = http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete
	return []operation{
		{name: "ListBuckets", method: get, level: onService, params: "max-buckets continuation-token prefix bucket-region", action: "s3:ListAllMyBuckets", handle: listBuckets},

		{name: "GetBucketLocation", method: get, level: onBucket, query: "location", action: "s3:GetBucketLocation", handle: getBucketLocation},
		{name: "GetBucketVersioning", method: get, level: onBucket, query: "versioning", action: "s3:GetBucketVersioning", handle: getBucketVersioning, note: "always: never enabled"},
		{name: "GetBucketAcl", method: get, level: onBucket, query: "acl", action: "s3:GetBucketAcl", handle: getBucketACL, note: "always: the owner has FULL_CONTROL"},
		{name: "ListMultipartUploads", method: get, level: onBucket, query: "uploads", params: "prefix delimiter encoding-type key-marker upload-id-marker max-uploads", action: "s3:ListBucketMultipartUploads", handle: listMultipartUploads},
		{name: "ListObjectsV2", method: get, level: onBucket, query: "list-type", params: listParams + " start-after continuation-token fetch-owner", action: "s3:ListBucket", handle: listObjectsV2},
		{name: "ListObjectVersions", method: get, level: onBucket, query: "versions", action: "s3:ListBucketVersions"},
		{name: "GetBucketAbac", method: get, level: onBucket, query: "abac", action: "s3:GetBucketAbac"},
		{name: "GetBucketAccelerateConfiguration", method: get, level: onBucket, query: "accelerate", action: "s3:GetAccelerateConfiguration"},
		{name: "GetBucketAnalyticsConfiguration", method: get, level: onBucket, query: "analytics id", action: "s3:GetAnalyticsConfiguration"},
		{name: "ListBucketAnalyticsConfigurations", method: get, level: onBucket, query: "analytics", action: "s3:GetAnalyticsConfiguration"},
		{name: "GetBucketCors", method: get, level: onBucket, query: "cors", action: "s3:GetBucketCORS"},
		{name: "GetBucketEncryption", method: get, level: onBucket, query: "encryption", action: "s3:GetEncryptionConfiguration"},
		{name: "GetBucketIntelligentTieringConfiguration", method: get, level: onBucket, query: "intelligent-tiering id", action: "s3:GetIntelligentTieringConfiguration"},
		{name: "ListBucketIntelligentTieringConfigurations", method: get, level: onBucket, query: "intelligent-tiering", action: "s3:GetIntelligentTieringConfiguration"},
		{name: "GetBucketInventoryConfiguration", method: get, level: onBucket, query: "inventory id", action: "s3:GetInventoryConfiguration"},
		{name: "ListBucketInventoryConfigurations", method: get, level: onBucket, query: "inventory", action: "s3:GetInventoryConfiguration"},
		{name: "GetBucketLifecycleConfiguration", method: get, level: onBucket, query: "lifecycle", action: "s3:GetLifecycleConfiguration"},
		{name: "GetBucketLogging", method: get, level: onBucket, query: "logging", action: "s3:GetBucketLogging"},
		{name: "GetBucketMetadataConfiguration", method: get, level: onBucket, query: "metadataConfiguration", action: "s3:GetBucketMetadataTableConfiguration"},
		{name: "GetBucketMetadataTableConfiguration", method: get, level: onBucket, query: "metadataTable", action: "s3:GetBucketMetadataTableConfiguration"},
		{name: "GetBucketMetricsConfiguration", method: get, level: onBucket, query: "metrics id", action: "s3:GetMetricsConfiguration"},
		{name: "ListBucketMetricsConfigurations", method: get, level: onBucket, query: "metrics", action: "s3:GetMetricsConfiguration"},
		{name: "GetBucketNotificationConfiguration", method: get, level: onBucket, query: "notification", action: "s3:GetBucketNotification"},
		{name: "GetBucketOwnershipControls", method: get, level: onBucket, query: "ownershipControls", action: "s3:GetBucketOwnershipControls"},
		{name: "GetBucketPolicy", method: get, level: onBucket, query: "policy", action: "s3:GetBucketPolicy"},
		{name: "GetBucketPolicyStatus", method: get, level: onBucket, query: "policyStatus", action: "s3:GetBucketPolicyStatus"},
		{name: "GetBucketReplication", method: get, level: onBucket, query: "replication", action: "s3:GetReplicationConfiguration"},
		{name: "GetBucketRequestPayment", method: get, level: onBucket, query: "requestPayment", action: "s3:GetBucketRequestPayment"},
		{name: "GetBucketTagging", method: get, level: onBucket, query: "tagging", action: "s3:GetBucketTagging"},
		{name: "GetBucketWebsite", method: get, level: onBucket, query: "website", action: "s3:GetBucketWebsite"},
		{name: "GetObjectLockConfiguration", method: get, level: onBucket, query: "object-lock", action: "s3:GetBucketObjectLockConfiguration"},
		{name: "GetPublicAccessBlock", method: get, level: onBucket, query: "publicAccessBlock", action: "s3:GetBucketPublicAccessBlock"},
		{name: "CreateSession", method: get, level: onBucket, query: "session", action: "s3express:CreateSession"},
		{name: "ListObjects", method: get, level: onBucket, params: listParams + " marker", action: "s3:ListBucket", handle: listObjectsV1},

		{name: "HeadBucket", method: head, level: onBucket, action: "s3:ListBucket", handle: headBucket},

		{name: "PutBucketAbac", method: put, level: onBucket, query: "abac", action: "s3:PutBucketAbac"},
		{name: "PutBucketAccelerateConfiguration", method: put, level: onBucket, query: "accelerate", action: "s3:PutAccelerateConfiguration"},
		{name: "PutBucketAcl", method: put, level: onBucket, query: "acl", action: "s3:PutBucketAcl"},
		{name: "PutBucketAnalyticsConfiguration", method: put, level: onBucket, query: "analytics", action: "s3:PutAnalyticsConfiguration"},
		{name: "PutBucketCors", method: put, level: onBucket, query: "cors", action: "s3:PutBucketCORS"},
		{name: "PutBucketEncryption", method: put, level: onBucket, query: "encryption", action: "s3:PutEncryptionConfiguration"},
		{name: "PutBucketIntelligentTieringConfiguration", method: put, level: onBucket, query: "intelligent-tiering", action: "s3:PutIntelligentTieringConfiguration"},
		{name: "PutBucketInventoryConfiguration", method: put, level: onBucket, query: "inventory", action: "s3:PutInventoryConfiguration"},
		{name: "PutBucketLifecycleConfiguration", method: put, level: onBucket, query: "lifecycle", action: "s3:PutLifecycleConfiguration"},
		{name: "PutBucketLogging", method: put, level: onBucket, query: "logging", action: "s3:PutBucketLogging"},
		{name: "UpdateBucketMetadataInventoryTableConfiguration", method: put, level: onBucket, query: "metadataInventoryTable", action: "s3:UpdateBucketMetadataInventoryTableConfiguration"},
		{name: "UpdateBucketMetadataJournalTableConfiguration", method: put, level: onBucket, query: "metadataJournalTable", action: "s3:UpdateBucketMetadataJournalTableConfiguration"},
		{name: "PutBucketMetricsConfiguration", method: put, level: onBucket, query: "metrics", action: "s3:PutMetricsConfiguration"},
		{name: "PutBucketNotificationConfiguration", method: put, level: onBucket, query: "notification", action: "s3:PutBucketNotification"},
		{name: "PutBucketOwnershipControls", method: put, level: onBucket, query: "ownershipControls", action: "s3:PutBucketOwnershipControls"},
		{name: "PutBucketPolicy", method: put, level: onBucket, query: "policy", action: "s3:PutBucketPolicy"},
		{name: "PutBucketReplication", method: put, level: onBucket, query: "replication", action: "s3:PutReplicationConfiguration"},
		{name: "PutBucketRequestPayment", method: put, level: onBucket, query: "requestPayment", action: "s3:PutBucketRequestPayment"},
		{name: "PutBucketTagging", method: put, level: onBucket, query: "tagging", action: "s3:PutBucketTagging"},
		{name: "PutBucketVersioning", method: put, level: onBucket, query: "versioning", action: "s3:PutBucketVersioning"},
		{name: "PutBucketWebsite", method: put, level: onBucket, query: "website", action: "s3:PutBucketWebsite"},
		{name: "PutObjectLockConfiguration", method: put, level: onBucket, query: "object-lock", action: "s3:PutBucketObjectLockConfiguration"},
		{name: "PutPublicAccessBlock", method: put, level: onBucket, query: "publicAccessBlock", action: "s3:PutBucketPublicAccessBlock"},
		{name: "CreateBucket", method: put, level: onBucket, action: "s3:CreateBucket", body: true, handle: createBucket},

		{name: "DeleteObjects", method: post, level: onBucket, query: "delete", action: "s3:DeleteObject", body: true, handle: deleteObjects},
		{name: "CreateBucketMetadataConfiguration", method: post, level: onBucket, query: "metadataConfiguration", action: "s3:CreateBucketMetadataTableConfiguration"},
		{name: "CreateBucketMetadataTableConfiguration", method: post, level: onBucket, query: "metadataTable", action: "s3:CreateBucketMetadataTableConfiguration"},
		{name: "PostObject", method: post, level: onBucket, action: "s3:PutObject", note: "browser form upload"},

		{name: "DeleteBucketAnalyticsConfiguration", method: del, level: onBucket, query: "analytics", action: "s3:PutAnalyticsConfiguration"},
		{name: "DeleteBucketCors", method: del, level: onBucket, query: "cors", action: "s3:PutBucketCORS"},
		{name: "DeleteBucketEncryption", method: del, level: onBucket, query: "encryption", action: "s3:PutEncryptionConfiguration"},
		{name: "DeleteBucketIntelligentTieringConfiguration", method: del, level: onBucket, query: "intelligent-tiering", action: "s3:PutIntelligentTieringConfiguration"},
		{name: "DeleteBucketInventoryConfiguration", method: del, level: onBucket, query: "inventory", action: "s3:PutInventoryConfiguration"},
		{name: "DeleteBucketLifecycle", method: del, level: onBucket, query: "lifecycle", action: "s3:PutLifecycleConfiguration"},
		{name: "DeleteBucketMetadataConfiguration", method: del, level: onBucket, query: "metadataConfiguration", action: "s3:DeleteBucketMetadataTableConfiguration"},
		{name: "DeleteBucketMetadataTableConfiguration", method: del, level: onBucket, query: "metadataTable", action: "s3:DeleteBucketMetadataTableConfiguration"},
		{name: "DeleteBucketMetricsConfiguration", method: del, level: onBucket, query: "metrics", action: "s3:PutMetricsConfiguration"},
		{name: "DeleteBucketOwnershipControls", method: del, level: onBucket, query: "ownershipControls", action: "s3:PutBucketOwnershipControls"},
		{name: "DeleteBucketPolicy", method: del, level: onBucket, query: "policy", action: "s3:DeleteBucketPolicy"},
		{name: "DeleteBucketReplication", method: del, level: onBucket, query: "replication", action: "s3:PutReplicationConfiguration"},
		{name: "DeleteBucketTagging", method: del, level: onBucket, query: "tagging", action: "s3:PutBucketTagging"},
		{name: "DeleteBucketWebsite", method: del, level: onBucket, query: "website", action: "s3:DeleteBucketWebsite"},
		{name: "DeletePublicAccessBlock", method: del, level: onBucket, query: "publicAccessBlock", action: "s3:PutBucketPublicAccessBlock"},
		{name: "DeleteBucket", method: del, level: onBucket, action: "s3:DeleteBucket", handle: deleteBucket},

		{name: "GetObjectAcl", method: get, level: onObject, query: "acl", params: "versionId", action: "s3:GetObjectAcl", handle: getObjectACL, note: "always: the owner has FULL_CONTROL"},
		{name: "GetObjectTagging", method: get, level: onObject, query: "tagging", params: "versionId", action: "s3:GetObjectTagging", handle: getObjectTagging, note: "always: no tags"},
		{name: "ListParts", method: get, level: onObject, query: "uploadId", params: "max-parts part-number-marker", action: "s3:ListMultipartUploadParts", handle: listParts},
		{name: "GetObjectAttributes", method: get, level: onObject, query: "attributes", action: "s3:GetObjectAttributes"},
		{name: "GetObjectLegalHold", method: get, level: onObject, query: "legal-hold", action: "s3:GetObjectLegalHold"},
		{name: "GetObjectRetention", method: get, level: onObject, query: "retention", action: "s3:GetObjectRetention"},
		{name: "GetObjectTorrent", method: get, level: onObject, query: "torrent", action: "s3:GetObjectTorrent"},
		{name: "GetObject", method: get, level: onObject, params: "partNumber versionId " + responseParams, action: "s3:GetObject", handle: getObject},

		{name: "HeadObject", method: head, level: onObject, params: "partNumber versionId " + responseParams, action: "s3:GetObject", handle: headObject},

		{name: "UploadPartCopy", method: put, level: onObject, query: "uploadId", header: "X-Amz-Copy-Source", params: "partNumber", action: "s3:PutObject", handle: uploadPartCopy},
		{name: "UploadPart", method: put, level: onObject, query: "uploadId", params: "partNumber", action: "s3:PutObject", body: true, handle: uploadPart},
		{name: "PutObjectAcl", method: put, level: onObject, query: "acl", action: "s3:PutObjectAcl"},
		{name: "UpdateObjectEncryption", method: put, level: onObject, query: "encryption", action: "s3:UpdateObjectEncryption"},
		{name: "PutObjectLegalHold", method: put, level: onObject, query: "legal-hold", action: "s3:PutObjectLegalHold"},
		{name: "PutObjectRetention", method: put, level: onObject, query: "retention", action: "s3:PutObjectRetention"},
		{name: "PutObjectTagging", method: put, level: onObject, query: "tagging", action: "s3:PutObjectTagging"},
		{name: "RenameObject", method: put, level: onObject, query: "renameObject", action: "s3express:RenameObject"},
		{name: "CopyObject", method: put, level: onObject, header: "X-Amz-Copy-Source", action: "s3:PutObject", handle: copyObject},
		{name: "PutObject", method: put, level: onObject, action: "s3:PutObject", body: true, handle: putObject},

		{name: "CreateMultipartUpload", method: post, level: onObject, query: "uploads", action: "s3:PutObject", handle: createMultipartUpload},
		{name: "CompleteMultipartUpload", method: post, level: onObject, query: "uploadId", action: "s3:PutObject", body: true, handle: completeMultipartUpload},
		{name: "SelectObjectContent", method: post, level: onObject, query: "select", action: "s3:GetObject"},
		{name: "RestoreObject", method: post, level: onObject, query: "restore", action: "s3:RestoreObject"},
		{name: "WriteGetObjectResponse", method: post, level: onObject, header: "X-Amz-Request-Route", action: "s3-object-lambda:WriteGetObjectResponse"},

		{name: "AbortMultipartUpload", method: del, level: onObject, query: "uploadId", action: "s3:AbortMultipartUpload", handle: abortMultipartUpload},
		{name: "DeleteObjectTagging", method: del, level: onObject, query: "tagging", action: "s3:DeleteObjectTagging"},
		{name: "DeleteObject", method: del, level: onObject, params: "versionId", action: "s3:DeleteObject", handle: deleteObject},
	}
}
