// SPDX-License-Identifier: Apache-2.0

// Package xmldoc checks the XML documents of S3 requests before the S3 library versitygw parses them.
//
// versitygw ignores unknown elements of an XML document, and uses only the last of several elements with the same
// name. Without a check, versitygw could report success for a document after ignoring a restriction in it. Package
// xmldoc refuses documents with unknown or repeated elements.
package xmldoc

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// element lists the elements that an element may contain. A nil element may contain only text.
type element map[string]part

// part describes an element that is contained in another element.
type part struct {
	in   element
	many bool // the element may occur more than once
	need bool // the element must occur
}

// documents are the known documents, by the name of the outermost element.
var documents = element{
	"VersioningConfiguration": {in: element{"Status": {}, "MfaDelete": {}}},
	"ObjectLockConfiguration": {in: element{
		"ObjectLockEnabled": {}, "Rule": {in: element{"DefaultRetention": {in: element{"Mode": {}, "Days": {},
			"Years": {}}}}},
	}},
	"Retention":         {in: element{"Mode": {}, "RetainUntilDate": {}}},
	"LegalHold":         {in: element{"Status": {}}},
	"Tagging":           {in: element{"TagSet": {in: element{"Tag": {many: true, in: element{"Key": {}, "Value": {}}}}}}},
	"OwnershipControls": {in: element{"Rule": {many: true, in: element{"ObjectOwnership": {}}}}},
	"AccessControlPolicy": {in: element{
		"Owner": {in: element{"ID": {}, "DisplayName": {}}},
		"AccessControlList": {in: element{"Grant": {many: true, in: element{
			"Grantee": {in: element{"ID": {}, "DisplayName": {}, "EmailAddress": {}, "URI": {}}}, "Permission": {},
		}}}},
	}},
	"PublicAccessBlockConfiguration": {in: element{
		"BlockPublicAcls": {}, "IgnorePublicAcls": {}, "BlockPublicPolicy": {}, "RestrictPublicBuckets": {},
	}},
	"Delete": {in: element{"Quiet": {}, "Object": {many: true, need: true, in: element{
		"Key": {}, "VersionId": {}, "ETag": {}, "LastModifiedTime": {}, "Size": {},
	}}}},
	"NotificationConfiguration": {in: element{
		"QueueConfiguration":         {many: true, in: notification("Queue")},
		"TopicConfiguration":         {many: true, in: notification("Topic")},
		"CloudFunctionConfiguration": {many: true, in: notification("CloudFunction")},
		"EventBridgeConfiguration":   {in: element{}},
	}},
	"BucketLoggingStatus": {in: element{"LoggingEnabled": {in: element{
		"TargetBucket": {}, "TargetPrefix": {},
		"TargetGrants": {in: element{"Grant": {many: true, in: element{
			"Grantee": {in: element{"ID": {}, "DisplayName": {}, "EmailAddress": {}, "URI": {}}}, "Permission": {},
		}}}},
		"TargetObjectKeyFormat": {in: element{
			"SimplePrefix": {in: element{}}, "PartitionedPrefix": {in: element{"PartitionDateSource": {}}},
		}},
	}}}},
	"ServerSideEncryptionConfiguration": {in: element{"Rule": {many: true, need: true, in: element{
		"ApplyServerSideEncryptionByDefault": {in: element{"SSEAlgorithm": {}, "KMSMasterKeyID": {}}}, "BucketKeyEnabled": {},
		"BlockedEncryptionTypes": {in: element{"EncryptionType": {many: true}}},
	}}}},
	"CORSConfiguration": {in: element{"CORSRule": {many: true, in: element{
		"ID": {}, "AllowedHeader": {many: true}, "AllowedMethod": {many: true}, "AllowedOrigin": {many: true},
		"ExposeHeader": {many: true}, "MaxAgeSeconds": {},
	}}}},
	"InventoryConfiguration": {in: element{
		"Destination": {need: true, in: element{"S3BucketDestination": {need: true, in: element{
			"AccountId": {}, "Bucket": {need: true}, "Format": {need: true}, "Prefix": {}}}}},
		"IsEnabled": {need: true}, "Filter": {in: element{"Prefix": {}}}, "Id": {need: true},
		"IncludedObjectVersions": {need: true}, "OptionalFields": {in: element{"Field": {many: true}}},
		"Schedule": {need: true, in: element{"Frequency": {need: true}}},
	}},
	"LifecycleConfiguration": {in: element{"Rule": {many: true, in: element{
		"ID": {}, "Status": {}, "Prefix": {},
		"Filter": {in: element{
			"Prefix": {}, "Tag": {in: tag}, "ObjectSizeGreaterThan": {}, "ObjectSizeLessThan": {},
			"And": {in: element{"Prefix": {}, "Tag": {many: true, in: tag}, "ObjectSizeGreaterThan": {},
				"ObjectSizeLessThan": {}}},
		}},
		"Expiration":                     {in: element{"Days": {}, "Date": {}, "ExpiredObjectDeleteMarker": {}}},
		"NoncurrentVersionExpiration":    {in: element{"NoncurrentDays": {}, "NewerNoncurrentVersions": {}}},
		"AbortIncompleteMultipartUpload": {in: element{"DaysAfterInitiation": {}}},
		"Transition":                     {many: true, in: element{"Days": {}, "Date": {}, "StorageClass": {}}},
		"NoncurrentVersionTransition": {many: true, in: element{"NoncurrentDays": {}, "NewerNoncurrentVersions": {},
			"StorageClass": {}}},
	}}}},
}

// tag is one tag of an object.
var tag = element{"Key": {}, "Value": {}}

// notification is one target of a notification configuration, whose ARN is in the element with the given name.
func notification(arn string) element {
	return element{
		"Id": {}, arn: {}, "Event": {many: true},
		"Filter": {in: element{"S3Key": {in: element{"FilterRule": {many: true, in: element{"Name": {}, "Value": {}}}}}}},
	}
}

// Missing is the error for a document without an element that must occur.
type Missing struct{ In, Name string }

// Error implements error.
func (m *Missing) Error() string { return fmt.Sprintf("the element %s has no %s", m.In, m.Name) }

// Check returns an error if an XML document is not valid. A document is not valid if it is not well-formed XML, if
// its root element does not have the given name, or if an element is unknown, missing or repeated. The parameter name
// must be the name of the root element of a document that this package knows. If an element is missing, the error is a
// *Missing.
func Check(body []byte, name string) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	seen := false
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			if !seen {
				return fmt.Errorf("it has no element %s", name)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is no XML")
		}
		start, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		if start.Name.Local != name || seen {
			return fmt.Errorf("the element %.64q, expected one %s", start.Name.Local, name)
		}
		seen = true
		if err := readElement(d, name, documents[name].in); err != nil {
			return err
		}
	}
}

// readElement reads and checks an element to its end. The description in limits the depth of the recursion.
func readElement(d *xml.Decoder, name string, in element) error {
	seen := map[string]bool{}
	for {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("it is no XML")
		}
		switch t := t.(type) {
		case xml.EndElement:
			for inner, p := range in {
				if p.need && !seen[inner] {
					return &Missing{In: name, Name: inner}
				}
			}
			return nil
		case xml.StartElement:
			inner := t.Name.Local
			p, ok := in[inner]
			switch {
			case !ok:
				return fmt.Errorf("the element %.64q in %s is not known", inner, name)
			case seen[inner] && !p.many:
				return fmt.Errorf("the element %s stands twice in %s", inner, name)
			}
			seen[inner] = true
			if err := readElement(d, inner, p.in); err != nil {
				return err
			}
		}
	}
}

// Count returns the number of start tags with the given name in an XML document, and the number of all start tags.
// The results are upper bounds, because Count also counts tags in comments and CDATA sections, which no S3 client
// sends. Count allocates no memory, so that a caller can refuse a list that is too long before parsing it.
func Count(doc []byte, name string) (named, all int) {
	for {
		at := bytes.IndexByte(doc, '<')
		if at < 0 {
			return named, all
		}
		doc = doc[at+1:]
		if len(doc) == 0 || doc[0] == '/' || doc[0] == '!' || doc[0] == '?' {
			continue
		}
		all++
		end := bytes.IndexAny(doc, " \t\r\n/><")
		if end < 0 {
			end = len(doc)
		}
		tag := doc[:end]
		if colon := bytes.LastIndexByte(tag, ':'); colon >= 0 {
			tag = tag[colon+1:]
		}
		if string(tag) == name {
			named++
		}
	}
}
