// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ChangeKind is what a change did to an object.
type ChangeKind string

// The journal knows these kinds of changes.
const (
	ChangePut       ChangeKind = "put"       // an object was written in one request, or through the door
	ChangePost      ChangeKind = "post"      // an object was written by an HTML form
	ChangeCopy      ChangeKind = "copy"      // an object was made of another object
	ChangeComplete  ChangeKind = "complete"  // an object was made of the parts of an upload
	ChangeAppend    ChangeKind = "append"    // an object of a directory bucket was made longer
	ChangeRename    ChangeKind = "rename"    // an object of a directory bucket got the key of the entry
	ChangeRenamed   ChangeKind = "renamed"   // an object of a directory bucket lost the key of the entry
	ChangeDelete    ChangeKind = "delete"    // a version or a delete marker was removed permanently
	ChangeMarker    ChangeKind = "marker"    // a delete marker was added
	ChangeTags      ChangeKind = "tags"      // the tags of a version were replaced
	ChangeUntag     ChangeKind = "untag"     // the tags of a version were removed
	ChangeACL       ChangeKind = "acl"       // the ACL of a version was replaced
	ChangeRetention ChangeKind = "retention" // the retention of a version was replaced
	ChangeHold      ChangeKind = "hold"      // the legal hold of a version was set or removed
	// ChangeAttributes is any other change of a version's attributes.
	ChangeAttributes ChangeKind = "attributes"
)

// Creates reports whether a change of this kind gives a key new content.
func (k ChangeKind) Creates() bool {
	switch k {
	case ChangePut, ChangePost, ChangeCopy, ChangeComplete, ChangeAppend, ChangeRename:
		return true
	}
	return false
}

// Removes reports whether a change of this kind takes content from a key.
func (k ChangeKind) Removes() bool {
	return k == ChangeDelete || k == ChangeMarker || k == ChangeRenamed
}

// Requester is who asked for a change. Each field may be empty.
type Requester struct {
	Principal string // access key of the account, or one of the Principal constants
	Remote    string // IP address of the client
	RequestID string
	HostID    string // x-amz-id-2 of the reply
	Agent     string // User-Agent of the client
}

// PrincipalLifecycle is the principal of changes that the lifecycle of a bucket made.
const PrincipalLifecycle = "nebulaio:lifecycle"

type requesterKey struct{}

// WithRequester returns a context whose changes were asked for by r.
func WithRequester(ctx context.Context, r Requester) context.Context {
	return context.WithValue(ctx, requesterKey{}, r)
}

// RequesterKey returns the key under which a context keeps a Requester. The context of a front end may answer this key
// itself, so that only journalled changes pay for the Requester.
func RequesterKey() any { return requesterKey{} }

// RequesterOf returns who asked for the changes of a context, or the zero Requester if the context does not say.
func RequesterOf(ctx context.Context) Requester {
	r, _ := ctx.Value(requesterKey{}).(Requester)
	return r
}

type kindKey struct{}

// WithChangeKind returns a context whose journalled change has this kind. The store itself does not know whether a
// change of attributes is one of tags or of a retention.
func WithChangeKind(ctx context.Context, kind ChangeKind) context.Context {
	return context.WithValue(ctx, kindKey{}, kind)
}

// ChangeKindOf returns the kind that WithChangeKind put into the context, or the parameter otherwise.
func ChangeKindOf(ctx context.Context, otherwise ChangeKind) ChangeKind {
	if k, ok := ctx.Value(kindKey{}).(ChangeKind); ok {
		return k
	}
	return otherwise
}

// SettingJournal begins the names of the bucket settings that ask for journal entries. The part of the program that
// asks adds its own name, such as "notification". The value of the setting is a list of rules, made by
// EncodeJournalRules.
const SettingJournal = "nebulaio-journal/"

// JournalRule asks for journal entries of a bucket. Only changes that match a rule of their bucket get an entry.
type JournalRule struct {
	// Consumer is the name of the queue that gets the entry.
	Consumer string `json:"consumer"`
	// Label is a text for the consumer, such as the identifier of a configuration. The entry repeats the label.
	Label string `json:"label,omitempty"`
	// Kinds lists the kinds of changes; empty means all kinds.
	Kinds []ChangeKind `json:"kinds,omitempty"`
	// Prefix and Suffix limit the rule to keys that begin and end with them.
	Prefix string `json:"prefix,omitempty"`
	Suffix string `json:"suffix,omitempty"`
	// Lifecycle limits the rule to changes by the bucket's lifecycle, and NoLifecycle to other changes.
	Lifecycle   bool `json:"lifecycle,omitempty"`
	NoLifecycle bool `json:"no_lifecycle,omitempty"`
}

// Matches reports whether the rule asks for a change of a key by a principal.
func (r *JournalRule) Matches(kind ChangeKind, key, principal string) bool {
	switch {
	case len(r.Kinds) > 0 && !slices.Contains(r.Kinds, kind):
		return false
	case r.Lifecycle && principal != PrincipalLifecycle, r.NoLifecycle && principal == PrincipalLifecycle:
		return false
	}
	return strings.HasPrefix(key, r.Prefix) && strings.HasSuffix(key, r.Suffix)
}

// MaxJournalRules is the largest number of rules of one bucket.
const MaxJournalRules = 2000

// EncodeJournalRules returns the value of a setting whose name begins with SettingJournal.
func EncodeJournalRules(rules []JournalRule) ([]byte, error) { return json.Marshal(rules) }

// JournalRules returns the rules in all settings of a bucket that ask for journal entries, or nil if there are none.
// JournalRules returns an error of kind Invalid if a setting is no list of rules.
func JournalRules(b *Bucket) ([]JournalRule, error) {
	var all []JournalRule
	for name, doc := range b.Settings {
		if !strings.HasPrefix(name, SettingJournal) {
			continue
		}
		var some []JournalRule
		if err := json.Unmarshal(doc, &some); err != nil {
			return nil, errs.New(errs.Invalid, "read the journal's rules", b.Name, fmt.Sprintf("setting %s: %v", name, err))
		}
		all = append(all, some...)
	}
	if len(all) > MaxJournalRules {
		return nil, errs.New(errs.Invalid, "read the journal's rules", b.Name,
			fmt.Sprintf("%d rules, expected at most %d", len(all), MaxJournalRules))
	}
	for i := range all {
		if c := all[i].Consumer; c == "" || len(c) > MaxConsumer {
			return nil, errs.New(errs.Invalid, "read the journal's rules", b.Name,
				fmt.Sprintf("a consumer of %d bytes, expected 1 to %d", len(c), MaxConsumer))
		}
	}
	return all, nil
}

// MaxConsumer is the largest length of a consumer's name, in bytes.
const MaxConsumer = 512

// JournalEntry is one change of an object, as one consumer of the journal gets it.
type JournalEntry struct {
	// Seq orders the entries of a consumer. Of two changes of one key, the later one has the higher Seq. The entries of
	// one change have the same Seq for all its consumers. A Seq is never used again.
	Seq  uint64
	Time time.Time
	Kind ChangeKind
	// Bucket and Owner are the name and the owner of the bucket at the time of the change.
	Bucket, Owner string
	Key           string
	Version       string // as Info.Version; NullVersion if the version has no identifier
	Versioned     bool   // whether the bucket had versioning enabled or suspended
	Marker        bool   // whether Version is a delete marker
	Size          int64
	ETag          string
	By            Requester
	Label         string // of the rule that matched
}

// JournalQueue describes the entries that wait for one consumer.
type JournalQueue struct {
	Consumer string
	Waiting  int64 // entries that were not acknowledged
	// Lost counts the oldest entries that were dropped because the queue was full. LastLost is the time of the last drop.
	Lost     int64
	LastLost time.Time
	// Oldest is the time of the oldest waiting change; zero if nothing waits.
	Oldest time.Time
}

// Journal is a store that keeps a durable journal of changes. An entry becomes durable and visible in the same step as
// its change: no acknowledged change lacks its entry, and no entry is without a change. Each consumer has a queue of
// its own, so a consumer that stands still does not hold up others.
//
// A queue has a bounded number of entries. If it is full, the store drops its oldest entries, counts them in
// JournalQueue.Lost and calls an event. Writers of objects never wait for the journal.
type Journal interface {
	// ReadJournal returns the oldest entries of a consumer with a Seq above the parameter after, at most limit of them.
	// ReadJournal returns no entries if there are none. An entry stays until AckJournal removes it, also after a restart.
	ReadJournal(ctx context.Context, consumer string, after uint64, limit int) ([]JournalEntry, error)
	// AckJournal removes the entries of a consumer up to and including the one with this Seq. A crash may bring back
	// entries that were acknowledged shortly before, so consumers have to expect an entry again.
	AckJournal(ctx context.Context, consumer string, through uint64) error
	// WaitJournal returns when a consumer has an entry with a Seq above the parameter after, or when ctx ends. The error
	// is that of ctx, or ErrClosed if the store is closed.
	WaitJournal(ctx context.Context, consumer string, after uint64) error
	// JournalQueues returns the queues of all consumers with entries or losses, ordered by name.
	JournalQueues(ctx context.Context) ([]JournalQueue, error)
	// ForgetJournal removes the queue of a consumer, with its entries and its count of losses.
	ForgetJournal(ctx context.Context, consumer string) error
}
