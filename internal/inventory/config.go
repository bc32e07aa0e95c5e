// SPDX-License-Identifier: Apache-2.0

// Package inventory writes lists of all objects of a bucket into another bucket, as S3 Inventory does.
//
// Parse reads and checks an inventory configuration, as PutBucketInventoryConfiguration sends it. A Worker writes the
// inventories of all buckets daily or weekly: CSV files, a manifest.json with their checksums, and a manifest.checksum.
package inventory

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// Setting is the name under which the settings of a bucket hold its inventory configurations.
const Setting = "inventory"

// MaxConfigs is the largest number of inventory configurations of a bucket.
const MaxConfigs = 1000

// Namespace is the XML namespace of the configuration.
const Namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

const (
	arnPrefix        = "arn:aws:s3:::"
	maxID            = 64
	daily, weekly    = "Daily", "Weekly"
	allVersions      = "All"
	currentVersions  = "Current"
	formatCSV        = "CSV"
	maxDestinationID = 512
)

// Config is one inventory configuration of a bucket. A Config that Parse returned is valid.
type Config struct {
	XMLName     xml.Name    // Parse sets it, with the Namespace
	Destination Destination `xml:"Destination>S3BucketDestination"`
	Enabled     bool        `xml:"IsEnabled"`
	Prefix      *string     `xml:"Filter>Prefix"`
	ID          string      `xml:"Id"`
	Versions    string      `xml:"IncludedObjectVersions"`
	Optional    *Optional   `xml:"OptionalFields"`
	Frequency   string      `xml:"Schedule>Frequency"`
}

// Optional lists the optional columns of an inventory.
type Optional struct {
	Fields []string `xml:"Field"`
}

// optional returns the optional columns.
func (c *Config) optional() []string {
	if c.Optional == nil {
		return nil
	}
	return c.Optional.Fields
}

// Destination is the bucket into which the inventory is written.
type Destination struct {
	Account string `xml:"AccountId,omitempty"`
	Bucket  string `xml:"Bucket"` // ARN of the bucket
	Format  string `xml:"Format"`
	Prefix  string `xml:"Prefix,omitempty"`
}

// Target returns the name of the destination bucket.
func (c *Config) Target() string { return strings.TrimPrefix(c.Destination.Bucket, arnPrefix) }

// Fault is the reason why a configuration is refused, with the status and the code of the S3 reply.
type Fault struct {
	Status int
	Code   string
	Reason string
}

// Error returns the code and the reason.
func (f *Fault) Error() string { return f.Code + ": " + f.Reason }

func malformed(form string, args ...any) error {
	return &Fault{Status: http.StatusBadRequest, Code: "MalformedXML", Reason: fmt.Sprintf(form, args...)}
}

// fields are the optional fields that an inventory can have.
var fields = []string{"Size", "LastModifiedDate", "StorageClass", "ETag", "IsMultipartUploaded",
	"ObjectLockRetainUntilDate", "ObjectLockMode", "ObjectLockLegalHoldStatus", "ChecksumAlgorithm", "ObjectOwner"}

// missing are the optional fields of S3 that an inventory of this server cannot have.
var missing = []string{"ReplicationStatus", "EncryptionStatus", "IntelligentTieringAccessTier", "BucketKeyStatus",
	"ObjectAccessControlList", "LifecycleExpirationDate"}

// Parse reads an inventory configuration and checks it by the rules of S3. Every error of Parse is a *Fault.
func Parse(body []byte) (*Config, error) {
	if err := xmldoc.Check(body, "InventoryConfiguration"); err != nil {
		return nil, malformed("%v", err)
	}
	c := &Config{}
	if err := xml.Unmarshal(body, c); err != nil {
		return nil, malformed("%v", err)
	}
	c.XMLName = xml.Name{Space: Namespace, Local: "InventoryConfiguration"}
	target := c.Target()
	switch {
	case c.ID == "" || len(c.ID) > maxID || strings.Trim(c.ID, idCharacters) != "":
		return nil, malformed("the Id %.80q, expected 1 to %d of the characters a-z, A-Z, 0-9, -, _ and .", c.ID, maxID)
	case c.Versions != allVersions && c.Versions != currentVersions:
		return nil, malformed("IncludedObjectVersions is %.64q, expected All or Current", c.Versions)
	case c.Frequency != daily && c.Frequency != weekly:
		return nil, malformed("the Frequency is %.64q, expected Daily or Weekly", c.Frequency)
	case target == c.Destination.Bucket || target == "" || strings.Contains(target, "/"):
		return nil, malformed("the destination bucket is %.128q, expected %sNAME", c.Destination.Bucket, arnPrefix)
	case len(c.Destination.Prefix) > maxDestinationID:
		return nil, malformed("the prefix of the destination has %d bytes, expected at most %d", len(c.Destination.Prefix),
			maxDestinationID)
	case c.Destination.Format == "ORC" || c.Destination.Format == "Parquet":
		return nil, &Fault{Status: http.StatusNotImplemented, Code: "NotImplemented",
			Reason: "this server writes inventories as CSV alone, and not as " + c.Destination.Format}
	case c.Destination.Format != formatCSV:
		return nil, malformed("the Format is %.64q, expected CSV", c.Destination.Format)
	}
	for i, f := range c.optional() {
		switch {
		case slices.Contains(missing, f):
			return nil, &Fault{Status: http.StatusNotImplemented, Code: "NotImplemented",
				Reason: "inventories of this server have no field " + f + ": leave it out"}
		case !slices.Contains(fields, f), slices.Contains(c.optional()[:i], f):
			return nil, malformed("the optional field %.64q is unknown or named twice", f)
		}
	}
	return c, nil
}

const idCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// XML returns the configuration as the body of a reply, without the XML header.
func (c *Config) XML() ([]byte, error) { return xml.Marshal(c) }

// ConfigsOf returns the inventory configurations of a bucket by their IDs.
func ConfigsOf(b *object.Bucket) (map[string]*Config, error) {
	doc, ok := b.Settings[Setting]
	if !ok {
		return nil, nil
	}
	var texts map[string]string
	err := json.Unmarshal(doc, &texts)
	all := make(map[string]*Config, len(texts))
	for id, text := range texts {
		if err == nil {
			all[id], err = Parse([]byte(text))
		}
	}
	if err != nil {
		return nil, errs.New(errs.Corrupt, "read the inventory configurations", b.Name, err.Error()).
			WithFix("put the inventory configurations again")
	}
	return all, nil
}

// EncodeConfigs returns configurations as the settings of a bucket hold them.
func EncodeConfigs(all map[string]*Config) ([]byte, error) {
	texts := make(map[string]string, len(all))
	for id, c := range all {
		doc, err := c.XML()
		if err != nil {
			return nil, errs.Wrap("encode the inventory configuration", id, err)
		}
		texts[id] = string(doc)
	}
	return json.Marshal(texts)
}

// Allowed returns why the inventory of a bucket must not be written into the destination, or nil. The source and the
// destination must have the same owner, because the server writes without asking for a permission.
func Allowed(from, to *object.Bucket) error {
	switch {
	case from.Owner != to.Owner:
		return errs.New(errs.Permission, "write the inventory", from.Name, "the bucket "+to.Name+" has another owner").
			WithFix("name a destination that belongs to the owner of the bucket")
	case to.OnUpstream(), object.IsDirectory(to.Name), from.OnUpstream(), object.IsDirectory(from.Name):
		return errs.New(errs.Unsupported, "write the inventory", from.Name, "upstream buckets and directory buckets have no "+
			"inventory").WithFix("use general purpose buckets of this server")
	}
	return nil
}
