// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Event is one name of an event in a notification configuration.
type Event struct {
	Name  string // such as "s3:ObjectCreated:*"
	Kinds []object.ChangeKind
	// Lifecycle and NoLifecycle are those of object.JournalRule.
	Lifecycle, NoLifecycle bool
}

// events returns the events that this server produces.
func events() []Event {
	created := []object.ChangeKind{object.ChangePut, object.ChangePost, object.ChangeCopy, object.ChangeComplete,
		object.ChangeAppend, object.ChangeRename}
	removed := []object.ChangeKind{object.ChangeDelete, object.ChangeRenamed, object.ChangeMarker}
	kinds := func(k ...object.ChangeKind) []object.ChangeKind { return k }
	return []Event{
		{Name: "s3:ObjectCreated:*", Kinds: created},
		{Name: "s3:ObjectCreated:Put", Kinds: kinds(object.ChangePut, object.ChangeAppend, object.ChangeRename)},
		{Name: "s3:ObjectCreated:Post", Kinds: kinds(object.ChangePost)},
		{Name: "s3:ObjectCreated:Copy", Kinds: kinds(object.ChangeCopy)},
		{Name: "s3:ObjectCreated:CompleteMultipartUpload", Kinds: kinds(object.ChangeComplete)},
		{Name: "s3:ObjectRemoved:*", Kinds: removed, NoLifecycle: true},
		{Name: "s3:ObjectRemoved:Delete", Kinds: kinds(object.ChangeDelete, object.ChangeRenamed), NoLifecycle: true},
		{Name: "s3:ObjectRemoved:DeleteMarkerCreated", Kinds: kinds(object.ChangeMarker), NoLifecycle: true},
		{Name: "s3:LifecycleExpiration:*", Kinds: removed, Lifecycle: true},
		{Name: "s3:LifecycleExpiration:Delete", Kinds: kinds(object.ChangeDelete), Lifecycle: true},
		{Name: "s3:LifecycleExpiration:DeleteMarkerCreated", Kinds: kinds(object.ChangeMarker), Lifecycle: true},
		{Name: "s3:ObjectTagging:*", Kinds: kinds(object.ChangeTags, object.ChangeUntag)},
		{Name: "s3:ObjectTagging:Put", Kinds: kinds(object.ChangeTags)},
		{Name: "s3:ObjectTagging:Delete", Kinds: kinds(object.ChangeUntag)},
		{Name: "s3:ObjectAcl:Put", Kinds: kinds(object.ChangeACL)},
		// S3 has no events for retention and legal hold. These are the names that MinIO uses.
		{Name: "s3:ObjectCreated:PutRetention", Kinds: kinds(object.ChangeRetention)},
		{Name: "s3:ObjectCreated:PutLegalHold", Kinds: kinds(object.ChangeHold)},
	}
}

// EventNamed returns the event with the given name, or false if this server does not produce such events.
func EventNamed(name string) (Event, bool) {
	for _, e := range events() {
		if e.Name == name {
			return e, true
		}
	}
	return Event{}, false
}

// EventNames returns the names of all events that this server produces.
func EventNames() []string {
	var all []string
	for _, e := range events() {
		all = append(all, e.Name)
	}
	return all
}

// NameOf returns the name of the event of a journal entry, without "s3:" as in records of Amazon S3.
func NameOf(e *object.JournalEntry) string {
	for _, k := range events() {
		if strings.HasSuffix(k.Name, "*") || k.Lifecycle && e.By.Principal != object.PrincipalLifecycle ||
			k.NoLifecycle && e.By.Principal == object.PrincipalLifecycle {
			continue
		}
		for _, kind := range k.Kinds {
			if kind == e.Kind {
				return strings.TrimPrefix(k.Name, "s3:")
			}
		}
	}
	return "ObjectChanged:" + string(e.Kind) // only for entries that no configuration asked for
}

// Consumer returns the name of the journal's queue of the target with this name.
func Consumer(target string) string { return "event/" + target }
