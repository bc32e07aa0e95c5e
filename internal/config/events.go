// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Audit holds the settings of the audit log.
type Audit struct {
	File            string // empty means the file audit/audit.log of the data directory, if Webhook is set
	MaxSize         int64
	Keep            int
	Webhook         string
	WebhookTokenEnv string // name of an environment variable
}

// Enabled reports whether the server writes an audit log.
func (a Audit) Enabled() bool { return a.File != "" || a.Webhook != "" }

// Events holds the limits of event notifications and of the access logs of buckets.
type Events struct {
	JournalLimit int64         // largest number of changes that wait for one target
	LogInterval  time.Duration // time between two objects of a bucket's access log
}

// EventTarget holds the settings of one receiver of event notifications.
type EventTarget struct {
	Type     string // "webhook", "nats" or "kafka"
	Address  []string
	Topic    string
	UserEnv  string // names of environment variables
	TokenEnv string
	CAFile   string
	TLS      bool
	SASL     string
	Timeout  time.Duration
}

// mostEventTargets is the largest number of targets of event notifications.
const mostEventTargets = 64

// EventTargets returns the names of the targets of event notifications in order.
func (c *Config) EventTargets() []string { return namesOf(c.EventTarget) }

// eventFields returns the keys of the audit log, the journal and the access logs of buckets.
func eventFields() []field {
	return []field{
		{Key: Key{Name: "audit.file", Type: Text,
			Help: "File of the audit log, which gets one line of JSON for each request before its reply. If audit.file is " +
				"not set and audit.webhook is set, the file is audit/audit.log in the data directory. If the file cannot " +
				"be written, requests are refused with status 503."},
			bind: func(c *Config) any { return &c.Audit.File }},
		{Key: Key{Name: "audit.max_size", Type: Size, Default: "100MiB", Min: 64 * kib, Max: 1024 * gib,
			Help: "Size in bytes at which the file of the audit log is rotated. A rotated file gets a number behind its name."},
			bind: func(c *Config) any { return &c.Audit.MaxSize }},
		{Key: Key{Name: "audit.keep", Type: Number, Default: "10", Min: 1, Max: 100_000,
			Help: "Number of rotated files of the audit log that are kept. Older files are removed."},
			bind: func(c *Config) any { return &c.Audit.Keep }},
		{Key: Key{Name: "audit.webhook", Type: Text,
			Help: "URL to which the server posts the lines of the audit log, in order and at least once. The files of the " +
				"audit log are the queue: lines that the URL has not accepted are sent again, also after a restart."},
			bind: func(c *Config) any { return &c.Audit.Webhook }, check: webhookURL},
		{Key: Key{Name: "audit.webhook_token_env", Type: Text,
			Help: "Name of the environment variable that holds the Authorization header for audit.webhook, such as " +
				"`Bearer TOKEN`."},
			bind: func(c *Config) any { return &c.Audit.WebhookTokenEnv }, check: variableName},
		{Key: Key{Name: "events.queue_limit", Type: Number, Default: "1000000", Min: 1, Max: 100_000_000,
			Help: "Largest number of changes that wait for one target of event notifications, or for one target of " +
				"replication. If more changes wait, the server drops the oldest ones and counts them."},
			bind: func(c *Config) any { return &c.Events.JournalLimit }},
		{Key: Key{Name: "events.log_interval", Type: Duration, Default: "5m", Min: int64(time.Second),
			Max:  int64(24 * time.Hour),
			Help: "Time between two objects of a bucket's access log, which PutBucketLogging turns on."},
			bind: func(c *Config) any { return &c.Events.LogInterval }},
	}
}

// eventTargetFields returns the settings of the target of event notifications with the given name.
func eventTargetFields(name string) []field {
	at := func(pick func(*EventTarget) any) func(*Config) any {
		return func(c *Config) any { return pick(c.EventTarget[name]) }
	}
	return []field{
		{Key: Key{Name: "type", Type: Choice, Choices: []string{"webhook", "nats", "kafka"},
			Help: "Kind of the target: an HTTP server (webhook), NATS JetStream (nats), or Apache Kafka (kafka). Each target " +
				"needs a type."},
			bind: at(func(t *EventTarget) any { return &t.Type })},
		{Key: Key{Name: "address", Type: List,
			Help: "Where the target is: one URL of a webhook, URLs of NATS servers such as `nats://host:4222`, or HOST:PORT of " +
				"Kafka brokers. Each target needs an address."},
			bind: at(func(t *EventTarget) any { return &t.Address })},
		{Key: Key{Name: "topic", Type: Text,
			Help: "Subject of NATS or topic of Kafka to which events are published. A stream of JetStream must contain the " +
				"subject, and the topic must exist. A webhook has no topic."},
			bind: at(func(t *EventTarget) any { return &t.Topic }), check: topicName},
		{Key: Key{Name: "user_env", Type: Text,
			Help: "Name of the environment variable that holds the user name for NATS or Kafka."},
			bind: at(func(t *EventTarget) any { return &t.UserEnv }), check: variableName},
		{Key: Key{Name: "token_env", Type: Text,
			Help: "Name of the environment variable that holds the secret of the target. The secret is the Authorization header " +
				"of a webhook, the password of user_env, or the token of NATS without user_env."},
			bind: at(func(t *EventTarget) any { return &t.TokenEnv }), check: variableName},
		{Key: Key{Name: "sasl", Type: Choice, Default: "none",
			Choices: []string{"none", "plain", "scram-sha-256", "scram-sha-512"},
			Help:    "How the server logs in at Kafka with user_env and token_env."},
			bind: at(func(t *EventTarget) any { return &t.SASL })},
		{Key: Key{Name: "tls", Type: Bool, Default: "false",
			Help: "Encrypt connections to Kafka by TLS. The URLs of webhooks and of NATS servers say it by their scheme."},
			bind: at(func(t *EventTarget) any { return &t.TLS })},
		{Key: Key{Name: "ca_file", Type: Text,
			Help: "PEM file with additional certificate authorities for the target."},
			bind: at(func(t *EventTarget) any { return &t.CAFile })},
		{Key: Key{Name: "timeout", Type: Duration, Default: "10s", Min: int64(100 * time.Millisecond),
			Max:  int64(10 * time.Minute),
			Help: "Time in which the target must confirm an event. After that time the event is sent again."},
			bind: at(func(t *EventTarget) any { return &t.Timeout })},
	}
}

// checkEvents checks settings of event targets that depend on each other.
func (c *Config) checkEvents() error {
	bad := func(key, msg, fix string) error {
		return errs.New(errs.Invalid, "read configuration", key, msg).WithFix(fix)
	}
	for _, name := range c.EventTargets() {
		t, key := c.EventTarget[name], "event_target."+name
		if t.Type == "" {
			return bad(key+".type", "is not set", "set webhook, nats or kafka")
		}
		if len(t.Address) == 0 {
			return bad(key+".address", "is not set", "set where the target is, such as http://127.0.0.1:8080/events")
		}
		if err := t.check(key, bad); err != nil {
			return err
		}
	}
	return nil
}

// auditNotes returns the notes on settings of the audit log that have no effect.
func (c *Config) auditNotes() []string {
	if c.Audit.WebhookTokenEnv != "" && c.Audit.Webhook == "" {
		return []string{"audit.webhook_token_env is set and has no effect, because audit.webhook is not set"}
	}
	return nil
}

// check checks the settings of one target by its type.
func (t *EventTarget) check(key string, bad func(key, msg, fix string) error) error {
	schemes := map[string][]string{"webhook": {"http", "https"}, "nats": {"nats", "tls", "ws", "wss"}}[t.Type]
	for _, address := range t.Address {
		why := ""
		if t.Type == "kafka" {
			if why = hostPort(address); why == "" {
				if host, _, err := net.SplitHostPort(address); err != nil || host == "" {
					why = "has no host; expected HOST:PORT"
				}
			}
		} else {
			why = urlOf(address, schemes)
		}
		if why != "" {
			return bad(key+".address", fmt.Sprintf("%q %s", address, why), "correct the address")
		}
	}
	switch {
	case t.Type == "webhook" && len(t.Address) > 1:
		return bad(key+".address", fmt.Sprintf("has %d URLs, and a webhook has one", len(t.Address)), "make a target of each")
	case t.Type == "webhook" && t.Topic != "":
		return bad(key+".topic", "is "+t.Topic+", and a webhook has no topic", "leave it out")
	case t.Type != "webhook" && t.Topic == "":
		return bad(key+".topic", "is not set", "set the subject or topic to which events are published")
	case t.Type == "webhook" && t.UserEnv != "":
		return bad(key+".user_env", "is "+t.UserEnv+", and a webhook has only token_env", "leave it out")
	case t.UserEnv != "" && t.TokenEnv == "":
		return bad(key+".user_env", "is set and token_env is not", "set both")
	case t.Type != "kafka" && (t.SASL != "none" || t.TLS):
		return bad(key+".sasl", "and tls are settings of kafka, and the type is "+t.Type, "leave them out")
	case t.Type == "kafka" && (t.SASL != "none") != (t.UserEnv != ""):
		return bad(key+".sasl", "is "+t.SASL+", and user_env is \""+t.UserEnv+"\"", "set both or none")
	case t.CAFile != "" && t.Type == "kafka" && !t.TLS:
		return bad(key+".ca_file", "is set and tls is false", "set tls to true")
	}
	return nil
}

// urlOf returns what is wrong with a URL that must have one of the schemes, or "".
func urlOf(text string, schemes []string) string {
	expected := "expected a URL such as " + schemes[0] + "://HOST:PORT/PATH"
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "is no URL; " + expected
	}
	if u.User != nil {
		return "has a user name or a password in it; set token_env instead"
	}
	for _, s := range schemes {
		if u.Scheme == s {
			return ""
		}
	}
	return "has the scheme " + u.Scheme + "; " + expected
}

func webhookURL(s string) string { return urlOf(s, []string{"http", "https"}) }

// eventTargetName checks the name of a target, which is a part of its ARN.
func eventTargetName(s string) string {
	if s == "" || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) {
		return "is no name of a target; expected 1 to 64 letters, digits, dashes and underscores"
	}
	return ""
}

// topicName checks a subject of NATS or a topic of Kafka, as both accept it.
func topicName(s string) string {
	if s == "" || len(s) > 249 || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") ||
		strings.ContainsFunc(s, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
		}) {
		return "is no subject or topic; expected 1 to 249 letters, digits, dashes, underscores and dots inside"
	}
	return ""
}
