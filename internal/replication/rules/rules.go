// SPDX-License-Identifier: Apache-2.0

// Package rules reads the replication configuration of a bucket, and decides which changes go to which target. Package
// rules does no I/O.
package rules

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Setting is the name of the bucket setting with the replication configuration, as Stored encodes it.
const Setting = "replication"

// Principal is the requester of changes that the replication itself makes.
const Principal = "nebulaio:replication"

// Config is the replication configuration of a bucket.
type Config struct {
	XMLName xml.Name  `xml:"ReplicationConfiguration"`
	Role    string    `xml:"Role,omitempty"`
	Rules   []Rule    `xml:"Rule"`
	Other   []unknown `xml:",any"`
}

// Rule says which objects go to one destination. The field Markers says whether delete markers go there too. The fields
// Deletes and Existing can only be Disabled: deletions of versions, and objects that are older than the rule, are not
// copied.
type Rule struct {
	ID                 string      `xml:"ID,omitempty"`
	Priority           *int        `xml:"Priority,omitempty"`
	Prefix             *string     `xml:"Prefix,omitempty"`
	Filter             *Filter     `xml:"Filter,omitempty"`
	Status             string      `xml:"Status"`
	Markers            *Switch     `xml:"DeleteMarkerReplication,omitempty"`
	Deletes            *Switch     `xml:"DeleteReplication,omitempty"`
	Existing           *Switch     `xml:"ExistingObjectReplication,omitempty"`
	Selection          *Selection  `xml:"SourceSelectionCriteria,omitempty"`
	Destination        Destination `xml:"Destination"`
	Other              []unknown   `xml:",any"`
	target, destBucket string
}

// Filter limits a rule to some objects.
type Filter struct {
	Prefix *string   `xml:"Prefix,omitempty"`
	Tag    *Tag      `xml:"Tag,omitempty"`
	And    *And      `xml:"And,omitempty"`
	Other  []unknown `xml:",any"`
}

// And limits a rule by a prefix and by tags together.
type And struct {
	Prefix *string   `xml:"Prefix,omitempty"`
	Tags   []Tag     `xml:"Tag"`
	Other  []unknown `xml:",any"`
}

// Tag is a tag that an object must have.
type Tag struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

// Switch is an element with a status.
type Switch struct {
	Status string `xml:"Status"`
}

// Selection chooses further objects; only its default is accepted.
type Selection struct {
	Replicas *Switch   `xml:"ReplicaModifications,omitempty"`
	KMS      *Switch   `xml:"SseKmsEncryptedObjects,omitempty"`
	Other    []unknown `xml:",any"`
}

// Destination is the bucket that gets the copies.
type Destination struct {
	Bucket string    `xml:"Bucket"` // arn:nebulaio:replication::TARGET:BUCKET
	Class  string    `xml:"StorageClass,omitempty"`
	Other  []unknown `xml:",any"`
}

type unknown struct {
	XMLName xml.Name
}

// Fault is a configuration that cannot be accepted, with the reply of S3.
type Fault struct {
	Status       int
	Code, Reason string
}

// Error returns the code and the reason.
func (f *Fault) Error() string { return f.Code + ": " + f.Reason }

func malformed(reason string) error {
	return &Fault{http.StatusBadRequest, "MalformedXML", reason}
}

func missing(what string) error {
	return &Fault{http.StatusNotImplemented, "NotImplemented",
		"The server does not have this part of replication: " + what}
}

// Limits of S3.
const (
	mostRules = 1000
	mostID    = 255
)

const enabled, disabled = "Enabled", "Disabled"

// Parse reads a replication configuration. known reports whether the server's configuration has a target with a name.
// The error is a *Fault.
func Parse(body []byte, known func(target string) bool) (*Config, error) {
	var c Config
	if err := xml.Unmarshal(body, &c); err != nil {
		return nil, malformed("The document is no ReplicationConfiguration.")
	}
	if len(c.Other) > 0 {
		return nil, malformed("The element " + c.Other[0].XMLName.Local + " is unknown.")
	}
	if len(c.Rules) == 0 || len(c.Rules) > mostRules {
		return nil, malformed(fmt.Sprintf("The configuration has %d rules, expected 1 to %d.", len(c.Rules), mostRules))
	}
	seen := map[string]bool{}
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.ID == "" {
			r.ID = fmt.Sprintf("rule-%d", i+1)
		}
		if seen[r.ID] || len(r.ID) > mostID {
			return nil, &Fault{http.StatusBadRequest, "InvalidArgument",
				fmt.Sprintf("The rule %.64q occurs twice, or its ID has more than %d characters.", r.ID, mostID)}
		}
		seen[r.ID] = true
		if err := r.check(known); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

func (r *Rule) check(known func(string) bool) error {
	for _, s := range []struct {
		name string
		at   *Switch
		only string // the one accepted status
	}{{"DeleteMarkerReplication", r.Markers, ""}, {"DeleteReplication", r.Deletes, disabled},
		{"ExistingObjectReplication", r.Existing, disabled}} {
		if s.at == nil {
			continue
		}
		if s.at.Status != enabled && s.at.Status != disabled {
			return malformed(fmt.Sprintf("The status of %s is %.32q, expected Enabled or Disabled.", s.name, s.at.Status))
		}
		if s.only != "" && s.at.Status != s.only {
			return missing(s.name + ".")
		}
	}
	if r.Status != enabled && r.Status != disabled {
		return malformed(fmt.Sprintf("The status of the rule %.64q is %.32q, expected Enabled or Disabled.", r.ID, r.Status))
	}
	if r.Priority != nil && *r.Priority < 0 {
		return malformed(fmt.Sprintf("The priority of the rule %.64q is %d, expected 0 or more.", r.ID, *r.Priority))
	}
	if r.Prefix != nil && r.Filter != nil {
		return malformed("A rule has a prefix and a filter, expected one of them.")
	}
	if err := r.checkParts(); err != nil {
		return err
	}
	target, bucket, ok := ParseARN(r.Destination.Bucket)
	if !ok {
		return &Fault{http.StatusBadRequest, "InvalidArgument", fmt.Sprintf("The destination is %.128q, expected "+
			"arn:nebulaio:replication::TARGET:BUCKET with a target of the server's configuration.", r.Destination.Bucket)}
	}
	if !known(target) {
		return &Fault{http.StatusNotFound, "RemoteTargetNotFoundError",
			fmt.Sprintf("The server's configuration has no target replication.%.64s.", target)}
	}
	r.target, r.destBucket = target, bucket
	return nil
}

// checkParts refuses parts of a rule that the server does not have.
func (r *Rule) checkParts() error {
	others := [][]unknown{r.Other, r.Destination.Other}
	if f := r.Filter; f != nil {
		others = append(others, f.Other)
		if f.And != nil {
			others = append(others, f.And.Other)
		}
		if given := b2i(f.Prefix != nil) + b2i(f.Tag != nil) + b2i(f.And != nil); given > 1 {
			return malformed("A filter has more than one of Prefix, Tag and And.")
		}
	}
	if s := r.Selection; s != nil {
		others = append(others, s.Other)
		for _, one := range []*Switch{s.Replicas, s.KMS} {
			if one != nil && one.Status != disabled {
				return missing("SourceSelectionCriteria.")
			}
		}
	}
	for _, some := range others {
		if len(some) > 0 {
			return missing(some[0].XMLName.Local + ".")
		}
	}
	if c := r.Destination.Class; c != "" && c != "STANDARD" {
		return missing(fmt.Sprintf("the storage class %.32q of a destination.", c))
	}
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ParseARN splits the name of a destination, arn:nebulaio:replication::TARGET:BUCKET, into target and bucket. ParseARN
// returns false for another text.
func ParseARN(arn string) (target, bucket string, ok bool) {
	rest, ok := strings.CutPrefix(arn, "arn:nebulaio:replication::")
	if !ok {
		return "", "", false
	}
	target, bucket, ok = strings.Cut(rest, ":")
	if !ok || target == "" || len(bucket) < 3 || len(bucket) > 63 || strings.ContainsAny(bucket, "/:*? ") {
		return "", "", false
	}
	return target, bucket, true
}

// Stored is the value of the bucket setting Setting.
type Stored struct {
	Document string    `json:"document"` // XML as the client put it, with the IDs of all rules
	Since    time.Time `json:"since"`    // versions that were written before are not replicated
}

// Read reads the value of the bucket setting, or returns nil if the bucket has no replication.
func Read(b *object.Bucket) (*Config, time.Time, error) {
	raw, ok := b.Settings[Setting]
	if !ok {
		return nil, time.Time{}, nil
	}
	var s Stored
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, time.Time{}, fmt.Errorf("replication of the bucket %s: %w", b.Name, err)
	}
	c, err := Parse([]byte(s.Document), func(string) bool { return true })
	return c, s.Since, err
}
