// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Link is one way of replication: from a bucket to a bucket of a target.
type Link struct {
	Bucket string // of this server
	Target string // name in the server's configuration
	To     string // bucket at the target
}

// Consumer returns the name of the link's queue in the journal.
func (l Link) Consumer() string { return "replication/" + l.Bucket + "/" + l.Target + "/" + l.To }

// key returns the name of the link in the status of a version.
func (l Link) key() string { return l.Target + "/" + l.To }

// Links returns the links of the enabled rules of a bucket.
func (c *Config) Links(bucket string) []Link {
	var out []Link
	for i := range c.Rules {
		r := &c.Rules[i]
		l := Link{bucket, r.target, r.destBucket}
		if r.Status == enabled && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// JournalRules returns the rules by which the journal keeps changes for the links of a bucket.
func (c *Config) JournalRules(bucket string) []object.JournalRule {
	var out []object.JournalRule
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Status != enabled {
			continue
		}
		kinds := []object.ChangeKind{object.ChangePut, object.ChangePost, object.ChangeCopy, object.ChangeComplete,
			object.ChangeTags, object.ChangeUntag}
		if r.Markers != nil && r.Markers.Status == enabled {
			kinds = append(kinds, object.ChangeMarker)
		}
		out = append(out, object.JournalRule{Consumer: Link{bucket, r.target, r.destBucket}.Consumer(), Prefix: r.prefix(),
			Kinds: kinds})
	}
	return out
}

func (r *Rule) prefix() string {
	for _, p := range []*string{r.Prefix, r.filter().Prefix, r.and().Prefix} {
		if p != nil {
			return *p
		}
	}
	return ""
}

func (r *Rule) filter() Filter {
	if r.Filter == nil {
		return Filter{}
	}
	return *r.Filter
}

func (r *Rule) and() And {
	if f := r.filter(); f.And != nil {
		return *f.And
	}
	return And{}
}

func (r *Rule) tags() []Tag {
	if f := r.filter(); f.Tag != nil {
		return []Tag{*f.Tag}
	}
	return r.and().Tags
}

// Wants reports whether a version goes over a link. Of several rules that match, the one with the highest priority
// decides. A delete marker has no tags, so rules with tags do not match it.
func (c *Config) Wants(l Link, info *object.Info) bool {
	var best *Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Status != enabled || r.target != l.Target || r.destBucket != l.To || !strings.HasPrefix(info.Key, r.prefix()) ||
			!hasTags(info.Attributes, r.tags()) {
			continue
		}
		if best == nil || r.priority() > best.priority() {
			best = r
		}
	}
	if best == nil {
		return false
	}
	return !info.Marker || best.Markers != nil && best.Markers.Status == enabled
}

func (r *Rule) priority() int {
	if r.Priority == nil {
		return 0
	}
	return *r.Priority
}

func hasTags(attrs map[string]string, want []Tag) bool {
	if len(want) == 0 {
		return true
	}
	have := map[string]string{}
	if doc := attrs[object.AttrTags]; doc != "" && json.Unmarshal([]byte(doc), &have) != nil {
		return false
	}
	for _, t := range want {
		if v, ok := have[t.Key]; !ok || v != t.Value {
			return false
		}
	}
	return true
}

// AttrStatus is the attribute of a version with its replication status: "REPLICA", or a JSON object with a State for
// each link.
const AttrStatus = object.AttrReplication

// The states of a version in the header x-amz-replication-status.
const (
	Pending   = "PENDING"
	Completed = "COMPLETED"
	Failed    = "FAILED"
	Replica   = "REPLICA"
)

// State is the state of a version at one link.
type State struct {
	Status  string `json:"s"`           // Completed or Failed
	Version string `json:"v,omitempty"` // identifier of the copy at the target
}

// StateOf returns the recorded state of a version at a link; its Status is empty if there is none.
func StateOf(attrs map[string]string, l Link) State {
	all := map[string]State{}
	if doc := attrs[AttrStatus]; doc == "" || json.Unmarshal([]byte(doc), &all) != nil {
		return State{}
	}
	return all[l.key()]
}

// SetState records the state of a version at a link in its attributes.
func SetState(attrs map[string]string, l Link, s State) error {
	all := map[string]State{}
	if doc := attrs[AttrStatus]; doc != "" && json.Unmarshal([]byte(doc), &all) != nil {
		all = map[string]State{}
	}
	all[l.key()] = s
	doc, err := json.Marshal(all)
	if err == nil {
		attrs[AttrStatus] = string(doc)
	}
	return err
}

// Status returns the header x-amz-replication-status of a version, or "" if the version is not replicated. c may be
// nil.
func (c *Config) Status(since time.Time, info *object.Info) string {
	if info.Attributes[AttrStatus] == Replica {
		return Replica
	}
	if c == nil {
		return ""
	}
	out := ""
	for _, l := range c.Links(info.Bucket) {
		switch s := StateOf(info.Attributes, l).Status; {
		case s == Failed:
			return Failed
		case s == Completed && out == "":
			out = Completed
		case s == "" && !info.Modified.Before(since) && c.Wants(l, info):
			out = Pending
		}
	}
	return out
}
