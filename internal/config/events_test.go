// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestEventTargetsAreRead(t *testing.T) {
	c, err := loadText(t, `
event_target:
  resize:
    type: webhook
    address: ["https://resize.example.com/events"]
    token_env: RESIZE_TOKEN
  bus:
    type: nats
    address: ["nats://a:4222", "nats://b:4222"]
    topic: store.events
    timeout: 3s
  Lake_1:
    type: kafka
    address: ["k1:9092"]
    topic: events
    sasl: scram-sha-256
    user_env: KAFKA_USER
    token_env: KAFKA_PASSWORD
    tls: true
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.EventTargets(), " "); got != "Lake_1 bus resize" {
		t.Errorf("targets %s", got)
	}
	if b := c.EventTarget["bus"]; b.Timeout != 3*time.Second || len(b.Address) != 2 || b.Topic != "store.events" {
		t.Errorf("%+v", b)
	}
	if r := c.EventTarget["resize"]; r.Timeout != 10*time.Second || r.SASL != "none" || r.TokenEnv != "RESIZE_TOKEN" {
		t.Errorf("%+v", r)
	}
}

func TestWrongEventTargetsAreRefused(t *testing.T) {
	webhook := "type: webhook\n    address: [\"http://h\"]"
	kafka := "type: kafka\n    topic: t\n    address: [\"h:1\"]"
	for settings, want := range map[string]string{
		"type: webhook":                                                          "event_target.t.address",
		"address: [\"http://h\"]":                                                "event_target.t.type",
		"type: sqs\n    address: [x]":                                            "sqs",
		"type: webhook\n    address: [\"ftp://h\"]":                              "ftp",
		"type: webhook\n    address: [\"http://u:p@h\"]":                         "token_env",
		"type: webhook\n    address: [\"http://h\", \"http://g\"]":               "2 URLs",
		webhook + "\n    topic: x":                                               "topic",
		webhook + "\n    user_env: X":                                            "user_env",
		webhook + "\n    tls: true":                                              "sasl",
		webhook + "\n    timeout: 1ms":                                           "1ms",
		"type: nats\n    address: [\"nats://h\"]":                                "topic",
		"type: nats\n    address: [\"http://h\"]\n    topic: t":                  "http",
		"type: nats\n    address: [\"nats://h\"]\n    topic: \"a b\"":            "a b",
		"type: kafka\n    topic: t\n    address: [\"h\"]":                        "HOST:PORT",
		kafka + "\n    sasl: plain":                                              "user_env",
		kafka + "\n    sasl: kerberos":                                           "kerberos",
		kafka + "\n    user_env: A\n    token_env: B":                            "sasl",
		kafka + "\n    ca_file: /ca":                                             "tls",
		"type: nats\n    address: [\"nats://h\"]\n    topic: t\n    user_env: A": "token_env",
	} {
		_, err := loadText(t, "event_target:\n  t:\n    "+settings+"\n")
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q in it", settings, err, want)
		}
	}
	if _, err := loadText(t, "event_target:\n  a.b:\n    type: kafka\n"); err == nil ||
		!strings.Contains(err.Error(), "a.b") {
		t.Errorf("a wrong name: %v", err)
	}
}
