// SPDX-License-Identifier: Apache-2.0

// Package lifecycle removes objects, versions and unfinished uploads when the lifecycle rules of their bucket say so.
//
// Parse reads and checks the lifecycle configuration of a bucket, as PutBucketLifecycleConfiguration sends it. The
// methods of Config tell when a version is due. A Worker removes the due versions of all buckets in the background. A
// Worker writes its progress in the same durable step as each removal. The reports of a Worker are therefore right
// even after kill -9.
package lifecycle

import (
	"encoding/xml"
	"time"
)

// Setting is the name under which the settings of a bucket hold the XML of its lifecycle configuration.
const Setting = "lifecycle"

// Namespace is the XML namespace of the configuration.
const Namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// Config is the lifecycle configuration of a bucket. A Config that Parse returned is valid and must not be changed.
type Config struct {
	XMLName xml.Name `json:"-"` // Parse sets it, with the Namespace
	Rules   []Rule   `xml:"Rule" json:"Rules"`
}

// Rule is one rule of a lifecycle configuration. A rule selects objects by its Filter, or by its Prefix if it has no
// Filter.
type Rule struct {
	ID                 string       `xml:"ID" json:"ID,omitempty"`
	Prefix             *string      `xml:"Prefix" json:"Prefix,omitempty"`
	Filter             *Filter      `xml:"Filter" json:"Filter,omitempty"`
	Status             string       `xml:"Status" json:"Status,omitempty"`
	Expiration         *Expiration  `xml:"Expiration" json:"Expiration,omitempty"`
	Noncurrent         *Noncurrent  `xml:"NoncurrentVersionExpiration" json:"NoncurrentVersionExpiration,omitempty"`
	Abort              *Abort       `xml:"AbortIncompleteMultipartUpload" json:"AbortIncompleteMultipartUpload,omitempty"`
	Transitions        []Transition `xml:"Transition" json:"Transition,omitempty"`
	NoncurrentMovement []Transition `xml:"NoncurrentVersionTransition" json:"NoncurrentVersionTransition,omitempty"`
}

// Filter selects objects. A Filter has at most one field; And combines several conditions.
type Filter struct {
	Prefix  *string `xml:"Prefix" json:"Prefix,omitempty"`
	Tag     *Tag    `xml:"Tag" json:"Tag,omitempty"`
	Greater *int64  `xml:"ObjectSizeGreaterThan" json:"ObjectSizeGreaterThan,omitempty"`
	Less    *int64  `xml:"ObjectSizeLessThan" json:"ObjectSizeLessThan,omitempty"`
	And     *And    `xml:"And" json:"And,omitempty"`
}

// And selects the objects for which all of its conditions are true.
type And struct {
	Prefix  *string `xml:"Prefix" json:"Prefix,omitempty"`
	Tags    []Tag   `xml:"Tag" json:"Tag,omitempty"`
	Greater *int64  `xml:"ObjectSizeGreaterThan" json:"ObjectSizeGreaterThan,omitempty"`
	Less    *int64  `xml:"ObjectSizeLessThan" json:"ObjectSizeLessThan,omitempty"`
}

// Tag is a tag that an object must have.
type Tag struct {
	Key   string `xml:"Key" json:"Key,omitempty"`
	Value string `xml:"Value" json:"Value"`
}

// Expiration removes current versions. An Expiration has exactly one field.
type Expiration struct {
	Days *int  `xml:"Days" json:"Days,omitempty"`
	Date *Date `xml:"Date" json:"Date,omitempty"`
	// Marker removes delete markers that have no other version below them.
	Marker *bool `xml:"ExpiredObjectDeleteMarker" json:"ExpiredObjectDeleteMarker,omitempty"`
}

// Noncurrent removes versions that are not current for a number of days.
type Noncurrent struct {
	Days *int `xml:"NoncurrentDays" json:"NoncurrentDays,omitempty"`
	// Newer is the number of newer noncurrent versions of the same key that are kept.
	Newer *int `xml:"NewerNoncurrentVersions" json:"NewerNoncurrentVersions,omitempty"`
}

// Abort ends multipart uploads that were not completed in a number of days.
type Abort struct {
	Days *int `xml:"DaysAfterInitiation" json:"DaysAfterInitiation,omitempty"`
}

// Transition moves objects to another storage class. Parse refuses it, because the server has one class.
type Transition struct {
	Days       *int   `xml:"Days" json:"Days,omitempty"`
	Date       *Date  `xml:"Date" json:"Date,omitempty"`
	Noncurrent *int   `xml:"NoncurrentDays" json:"NoncurrentDays,omitempty"`
	Newer      *int   `xml:"NewerNoncurrentVersions" json:"NewerNoncurrentVersions,omitempty"`
	Class      string `xml:"StorageClass" json:"StorageClass,omitempty"`
}

// Date is a date of a configuration, which is midnight UTC.
type Date struct{ time.Time }

// UnmarshalText reads a date in ISO 8601.
func (d *Date) UnmarshalText(text []byte) error {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(form, string(text)); err == nil {
			d.Time = t.UTC()
			return nil
		}
	}
	return malformed("the date %.64q is not in ISO 8601, such as 2030-01-31T00:00:00Z", text)
}

// MarshalText writes the date in ISO 8601.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.UTC().Format(time.RFC3339)), nil }

// XML returns the configuration as the body of a reply.
func (c *Config) XML() ([]byte, error) {
	doc, err := xml.Marshal(c)
	return append([]byte(xml.Header), doc...), err
}

// Enabled reports whether the rule is applied.
func (r *Rule) Enabled() bool { return r.Status == statusEnabled }
