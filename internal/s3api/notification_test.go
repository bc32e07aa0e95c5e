// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// queueOf returns a notification of a queue.
func queueOf(id, arn, events, filter string) string {
	return "<QueueConfiguration><Id>" + id + "</Id><Queue>" + arn + "</Queue>" + events + filter + "</QueueConfiguration>"
}

func wholeOf(parts ...string) []byte {
	return []byte("<NotificationConfiguration>" + strings.Join(parts, "") + "</NotificationConfiguration>")
}

const (
	hookARN    = "arn:minio:sqs:us-east-1:hook:webhook"
	putEvent   = "<Event>s3:ObjectCreated:Put</Event>"
	allEvents  = "<Event>s3:ObjectCreated:*</Event>"
	goneEvents = "<Event>s3:ObjectRemoved:*</Event>"
)

func filterOf(prefix, suffix string) string {
	return "<Filter><S3Key><FilterRule><Name>Prefix</Name><Value>" + prefix +
		"</Value></FilterRule><FilterRule><Name>suffix" + "</Name><Value>" + suffix + "</Value></FilterRule></S3Key></Filter>"
}

func TestNotificationsAreRead(t *testing.T) {
	targets := map[string]string{"hook": "webhook", "bus": "nats"}
	doc, rules, err := readNotifications(wholeOf(
		queueOf("a", hookARN, putEvent+goneEvents, filterOf("in/", ".png")),
		"<TopicConfiguration><Topic>arn:nebulaio:sns::bus:nats</Topic>"+allEvents+filterOf("in/",
			".jpg")+"</TopicConfiguration>",
	), targets)
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) != 3 || rules[0].Consumer != "event/hook" || rules[0].Label != "a" || rules[0].Prefix != "in/" ||
		rules[0].Suffix != ".png" || !rules[1].NoLifecycle || rules[2].Consumer != "event/bus" || rules[2].Label == "" {
		t.Errorf("rules %+v", rules)
	}
	text, err := xml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := readNotifications(text, targets); err != nil || len(again) != 3 ||
		again[2].Label != rules[2].Label {
		t.Errorf("what is stored reads as %+v, %v", again, err)
	}
	if _, none, err := readNotifications(wholeOf(), targets); err != nil || len(none) != 0 {
		t.Errorf("an empty configuration: %+v, %v", none, err)
	}
}

func TestWrongNotificationsAreRefused(t *testing.T) {
	many := strings.Repeat(queueOf("", hookARN, putEvent, ""), 101)
	for body, want := range map[string]string{
		string(wholeOf(queueOf("a", "arn:aws:sqs:us-east-1:1:q", putEvent, ""))):                    "InvalidArgument",
		string(wholeOf(queueOf("a", "arn:minio:sqs::hook:nats", putEvent, ""))):                     "InvalidArgument",
		string(wholeOf(queueOf("a", hookARN, "", ""))):                                              "MalformedXML",
		string(wholeOf(queueOf("a", hookARN, "<Event>s3:ObjectRestore:*</Event>", ""))):             "InvalidArgument",
		string(wholeOf(queueOf("a", hookARN, putEvent, ""), queueOf("b", hookARN, allEvents, ""))):  "overlap",
		string(wholeOf(queueOf("a", hookARN, putEvent, ""), queueOf("a", hookARN, goneEvents, ""))): "unique",
		string(wholeOf(queueOf("a", hookARN, putEvent, filterOf(strings.Repeat("x", 1025), "")))):   "1024",
		string(wholeOf("<EventBridgeConfiguration></EventBridgeConfiguration>")):                    "EventBridge",
		string(wholeOf(many)): "101",
		"<NotificationConfiguration><Other/></NotificationConfiguration>": "MalformedXML",
		"": "MalformedXML",
	} {
		_, _, err := readNotifications([]byte(body), map[string]string{"hook": "webhook"})
		known, ok := err.(s3err.S3Error)
		if !ok || !strings.Contains(known.BaseError().Code+" "+known.BaseError().Description, want) {
			t.Errorf("%.200s: %v, expected %s", body, err, want)
		}
	}
	// Configurations whose keys differ do not overlap.
	if _, _, err := readNotifications(wholeOf(queueOf("a", hookARN, putEvent, filterOf("a/", "")),
		queueOf("b", hookARN, allEvents, filterOf("b/", ""))), map[string]string{"hook": "webhook"}); err != nil {
		t.Errorf("different prefixes: %v", err)
	}
}

func FuzzReadNotifications(f *testing.F) {
	f.Add(wholeOf(queueOf("a", hookARN, putEvent, filterOf("p", "s"))))
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, rules, err := readNotifications(body, map[string]string{"hook": "webhook"})
		if err != nil {
			return
		}
		text, err := xml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := readNotifications(text, map[string]string{"hook": "webhook"}); err != nil ||
			len(again) != len(rules) {
			t.Fatalf("%q became %q: %v", body, text, err)
		}
	})
}

func FuzzReadLogging(f *testing.F) {
	f.Add(
		[]byte("<BucketLoggingStatus><LoggingEnabled><TargetBucket>b</TargetBucket></LoggingEnabled></BucketLoggingStatus>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, err := readLogging(body)
		if err != nil {
			return
		}
		text, err := xml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readLogging(text); err != nil {
			t.Fatalf("%q became %q: %v", body, text, err)
		}
	})
}

func TestALineOfAnAccessLog(t *testing.T) {
	e := Event{Time: time.Date(2026, 11, 17, 1, 2, 3, 0, time.UTC), Duration: 12 * time.Millisecond,
		Operation: "GetObject",
		Method:    "GET", Bucket: "b", Key: "a b", Status: 404, Code: "NoSuchKey", Out: 9, RequestID: "R",
		Remote:  "10.0.0.1:5",
		Account: "ann", HTTP: &HTTP{HostID: "H", Agent: `x "y"`, Host: "h:9000", URI: "/b/a%20b?tagging", Proto: "HTTP/1.1",
			Signature: "SigV4", Auth: "AuthHeader", Size: -1}}
	const want = `own b [17/Nov/2026:01:02:03 +0000] 10.0.0.1 ann R REST.GET.OBJECT_TAGGING a%2520b ` +
		`"GET /b/a%20b?tagging HTTP/1.1" 404 NoSuchKey 9 - 12 12 "-" "x _y_" - H SigV4 - AuthHeader h:9000 - - -`
	if got := string(accessLine("own", &e)); got != want {
		t.Errorf("the line is\n%s\nexpected\n%s", got, want)
	}
	for uri, want := range map[string]string{
		"/b/k": "/b/k", "/b/k?X-Amz-Signature=abc&x=1": "/b/k?X-Amz-Signature=-&x=1",
		"/b/k?x-amz-security-token=abc": "/b/k?x-amz-security-token=-",
	} {
		if got := harmless(uri); got != want {
			t.Errorf("%s became %s, expected %s", uri, got, want)
		}
	}
	if (&object.Bucket{}).OnUpstream() {
		t.Error("a bucket without settings is on no upstream")
	}
}
