// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/notify"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

const (
	// settingNotification is the name of the notification configuration in the settings of a bucket.
	settingNotification = "notification"
	// maxNotifications is the largest number of configurations of a bucket, as in S3.
	maxNotifications = 100
	// s3Space is the XML name space of S3's documents.
	s3Space = "http://s3.amazonaws.com/doc/2006-03-01/"
	// maxFilter is the largest length of a prefix or suffix, as of a key.
	maxFilter = object.MaxKey
)

// notifications is the document of a bucket's event notifications.
type notifications struct {
	XMLName     xml.Name       `xml:"NotificationConfiguration"`
	Space       string         `xml:"xmlns,attr"`
	Topics      []notification `xml:"TopicConfiguration"`
	Queues      []notification `xml:"QueueConfiguration"`
	Functions   []notification `xml:"CloudFunctionConfiguration"`
	EventBridge *struct{}      `xml:"EventBridgeConfiguration"`
}

// notification asks for events of one target.
type notification struct {
	ID       string              `xml:"Id"`
	Queue    string              `xml:"Queue,omitempty"`
	Topic    string              `xml:"Topic,omitempty"`
	Function string              `xml:"CloudFunction,omitempty"`
	Events   []string            `xml:"Event"`
	Filter   *notificationFilter `xml:"Filter,omitempty"`
}

type notificationFilter struct {
	Key struct {
		Rules []filterRule `xml:"FilterRule"`
	} `xml:"S3Key"`
}

type filterRule struct {
	Name  string `xml:"Name"`
	Value string `xml:"Value"`
}

func notificationConfiguration() configuration {
	return configuration{
		get: auth.GetBucketNotificationAction, put: auth.PutBucketNotificationAction,
		write: func(b *backend, ctx fiber.Ctx, bucket string, body []byte) error {
			return putNotification(b, ctx, bucket, body)
		},
		read: func(b *backend, ctx fiber.Ctx, bucket string) ([]byte, error) {
			bk, err := b.bucketOf(ctx.RequestCtx(), bucket)
			if err != nil {
				return nil, err
			}
			if doc, ok := bk.Settings[settingNotification]; ok {
				return doc, nil
			}
			return xml.Marshal(notifications{Space: s3Space})
		},
		remove: func(*backend, fiber.Ctx, string) error { return methodNotAllowed() },
	}
}

// putNotification stores the notification configuration of a bucket together with the journal's rules that follow from
// it. An empty configuration turns notifications off.
func putNotification(b *backend, ctx fiber.Ctx, bucket string, body []byte) error {
	doc, rules, err := readNotifications(body, b.eventTargets)
	if err != nil {
		return err
	}
	encoded, err := xml.Marshal(doc)
	if err != nil {
		return err
	}
	journal, err := object.EncodeJournalRules(rules)
	if err != nil {
		return err
	}
	return b.change(ctx.RequestCtx(), bucket, func(bk *object.Bucket) error {
		if bk.OnUpstream() && len(rules) > 0 {
			return notImplemented("notification", "events of upstream buckets, which other servers change too")
		}
		delete(bk.Settings, settingNotification)
		delete(bk.Settings, object.SettingJournal+settingNotification)
		if len(rules) > 0 {
			bk.Settings[settingNotification] = encoded
			bk.Settings[object.SettingJournal+settingNotification] = journal
		}
		return nil
	})
}

// readNotifications parses a notification configuration, and returns it with all identifiers and its journal rules.
func readNotifications(body []byte, targets map[string]string) (*notifications, []object.JournalRule, error) {
	var doc notifications
	if err := xmldoc.Check(body, "NotificationConfiguration"); err != nil {
		return nil, nil, malformedXML(err)
	}
	if err := xml.Unmarshal(body, &doc); err != nil {
		return nil, nil, malformedXML(err)
	}
	doc.XMLName, doc.Space = xml.Name{}, s3Space
	if doc.EventBridge != nil {
		return nil, nil, notImplemented("EventBridgeConfiguration", "Amazon EventBridge")
	}
	if n := len(doc.Queues) + len(doc.Topics) + len(doc.Functions); n > maxNotifications {
		return nil, nil, invalid(fmt.Sprintf("%d notification configurations, expected at most %d", n, maxNotifications))
	}
	var rules []object.JournalRule
	ids := map[string]bool{}
	for _, group := range [][]notification{doc.Queues, doc.Topics, doc.Functions} {
		for i := range group {
			some, err := group[i].rules(targets)
			if err != nil {
				return nil, nil, err
			}
			if ids[group[i].ID] {
				return nil, nil, invalid("Same ID used for multiple configurations. IDs must be unique: " + quoteText(group[i].ID))
			}
			ids[group[i].ID] = true
			for k := range some {
				if slices.ContainsFunc(rules, func(r object.JournalRule) bool { return overlap(&r, &some[k]) }) {
					return nil, nil, invalid("Configurations overlap. Configurations on the same bucket cannot share a common " +
						"event type.")
				}
			}
			rules = append(rules, some...)
		}
	}
	return &doc, rules, nil
}

// rules checks a notification, gives it an identifier if it has none, and returns its journal rules.
func (n *notification) rules(targets map[string]string) ([]object.JournalRule, error) {
	arn := n.Queue + n.Topic + n.Function // a document of each kind has only its own element
	target, err := eventTargetOf(arn, targets)
	if err != nil {
		return nil, err
	}
	if len(n.Events) == 0 {
		return nil, malformedXML(errors.New("a configuration has no Event"))
	}
	prefix, suffix, err := n.Filter.keys()
	if err != nil {
		return nil, err
	}
	if n.ID == "" {
		h := fnv.New128a()
		fmt.Fprintf(h, "%q %q %q %q", arn, n.Events, prefix, suffix)
		n.ID = hex.EncodeToString(h.Sum(nil))
	}
	if len(n.ID) > 255 {
		return nil, invalid("An Id has at most 255 characters.")
	}
	var rules []object.JournalRule
	for _, name := range n.Events {
		e, ok := notify.EventNamed(name)
		if !ok {
			return nil, invalid("The event " + quoteText(name) + " is not supported for notifications. Expected one of " +
				strings.Join(notify.EventNames(), ", ") + ".")
		}
		rules = append(rules, object.JournalRule{Consumer: notify.Consumer(target), Label: n.ID, Kinds: e.Kinds,
			Prefix: prefix, Suffix: suffix, Lifecycle: e.Lifecycle, NoLifecycle: e.NoLifecycle})
	}
	return rules, nil
}

// keys returns the prefix and the suffix of a filter, which may be nil.
func (f *notificationFilter) keys() (prefix, suffix string, err error) {
	if f == nil {
		return "", "", nil
	}
	seen := map[string]bool{}
	for _, r := range f.Key.Rules {
		name := strings.ToLower(r.Name)
		if name != "prefix" && name != "suffix" {
			return "", "", invalid("filter rule name must be either prefix or suffix, not " + quoteText(r.Name))
		}
		if seen[name] {
			return "", "", invalid("Cannot specify more than one " + name + " rule in a filter.")
		}
		if len(r.Value) > maxFilter {
			return "", "", invalid("Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation")
		}
		seen[name] = true
		if name == "prefix" {
			prefix = r.Value
		} else {
			suffix = r.Value
		}
	}
	return prefix, suffix, nil
}

// eventTargetOf returns the name of the target that an ARN names. The ARN has the form
// arn:nebulaio:sqs:REGION:NAME:TYPE. The partition of MinIO is accepted too, and the service may be sqs, sns or lambda.
func eventTargetOf(arn string, targets map[string]string) (string, error) {
	p := strings.Split(arn, ":")
	if len(p) == 6 && p[0] == "arn" && (p[1] == "nebulaio" || p[1] == "minio") && slices.Contains([]string{"sqs", "sns",
		"lambda"}, p[2]) {
		if kind, ok := targets[p[4]]; ok && kind == p[5] {
			return p[4], nil
		}
	}
	var known []string
	for name, kind := range targets {
		known = append(known, "arn:nebulaio:sqs::"+name+":"+kind)
	}
	slices.Sort(known)
	expected := "the server has no event_target in its configuration"
	if len(known) > 0 {
		expected = "expected one of " + strings.Join(known, ", ")
	}
	return "", invalid("A specified destination ARN does not exist or is not well-formed: " + quoteText(arn) + "; " +
		expected)
}

// overlap reports whether one change can match two rules.
func overlap(a, b *object.JournalRule) bool {
	if a.Lifecycle && b.NoLifecycle || a.NoLifecycle && b.Lifecycle {
		return false
	}
	if !slices.ContainsFunc(a.Kinds, func(k object.ChangeKind) bool { return slices.Contains(b.Kinds, k) }) {
		return false
	}
	return (strings.HasPrefix(a.Prefix, b.Prefix) || strings.HasPrefix(b.Prefix, a.Prefix)) &&
		(strings.HasSuffix(a.Suffix, b.Suffix) || strings.HasSuffix(b.Suffix, a.Suffix))
}

// quoteText quotes the beginning of a client's text for a message.
func quoteText(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return `"` + strings.ToValidUTF8(s, "?") + `"`
}

func methodNotAllowed() error {
	return refusal(http.StatusMethodNotAllowed, "MethodNotAllowed",
		"The specified method is not allowed against this resource.")
}
