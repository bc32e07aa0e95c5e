// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// events is a receiver of event notifications that can be down.
type events struct {
	mu    sync.Mutex
	down  bool
	names []string // event, key and version, in order
	grown chan struct{}
}

func (r *events) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	b, _ := io.ReadAll(req.Body)
	var e struct {
		EventName, Key string
		Records        []struct {
			S3 struct {
				Object struct{ VersionID string }
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down || json.Unmarshal(b, &e) != nil || len(e.Records) != 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.names = append(r.names, e.EventName+" "+e.Key+" "+e.Records[0].S3.Object.VersionID)
	select {
	case r.grown <- struct{}{}:
	default:
	}
}

func (r *events) has() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int{}
	for _, n := range r.names {
		all[n]++
	}
	return all
}

// send sends a signed request with a document, and returns the status and the reply.
func (s *server) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	resp, err := http.DefaultClient.Do(signer.SignV4(*req, user, password, "", "us-east-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

const notification = `<NotificationConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><QueueConfiguration>` +
	`<Id>all</Id><Queue>arn:minio:sqs::hook:webhook</Queue><Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:*</Event>` +
	`<Event>s3:ObjectTagging:*</Event><Filter><S3Key><FilterRule><Name>prefix</Name><Value>in/</Value></FilterRule></S3Key>` +
	`</Filter></QueueConfiguration></NotificationConfiguration>`

// TestEventsWithReceiverDownAndServerKilled writes while the receiver is down and the server is killed. Every
// acknowledged change arrives at least once, and nothing else.
func TestEventsWithReceiverDownAndServerKilled(t *testing.T) {
	r := &events{down: true, grown: make(chan struct{}, 1)}
	receiver := httptest.NewServer(r)
	defer receiver.Close()
	data := t.TempDir()
	file := filepath.Join(t.TempDir(), "server.yaml")
	settings := fmt.Sprintf("event_target:\n  hook:\n    type: webhook\n    address: [%q]\n", receiver.URL)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, data, "--config", file)
	c := s.client(t)
	if err := c.MakeBucket(t.Context(), auditBucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnableVersioning(t.Context(), auditBucket); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		notification: "", "<x/>": "MalformedXML",
		strings.Replace(notification, "hook:webhook", "other:webhook", 1):             "InvalidArgument",
		strings.Replace(notification, "s3:ObjectTagging:*", "s3:ObjectAccessed:*", 1): "InvalidArgument",
		strings.Replace(notification, "<Name>prefix", "<Name>middle", 1):              "InvalidArgument",
	} {
		status, reply := s.send(t, "PUT", "/"+auditBucket+"?notification", body)
		if (want == "") != (status == 200) || !strings.Contains(reply, want) {
			t.Fatalf("PUT ?notification: status %d, %s, expected %q", status, reply, want)
		}
	}
	if status, reply := s.send(t, "GET", "/"+auditBucket+"?notification", ""); status != 200 ||
		!strings.Contains(reply, "<Id>all</Id><Queue>arn:minio:sqs::hook:webhook</Queue>") {
		t.Fatalf("GET ?notification: status %d, %s", status, reply)
	}
	var mu sync.Mutex
	acked := map[string]bool{}
	ack := func(name, key, version string) {
		mu.Lock()
		defer mu.Unlock()
		acked[name+" "+auditBucket+"/"+key+" "+version] = true
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acked)
	}
	for round := range 3 {
		target := count() + 60
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprintf("in/%d-%d-%d", round, w, i)
					info, err := c.PutObject(t.Context(), auditBucket, key, bytes.NewReader([]byte(key)), int64(len(key)), "", "",
						minio.PutObjectOptions{})
					if err != nil {
						return
					}
					ack("s3:ObjectCreated:Put", key, info.VersionID)
					if _, err := c.PutObject(t.Context(), auditBucket, "out/"+key, bytes.NewReader(nil), 0, "", "",
						minio.PutObjectOptions{}); err != nil {
						return
					}
					if i%4 == 0 {
						if err := c.RemoveObject(t.Context(), auditBucket, key,
							minio.RemoveObjectOptions{VersionID: info.VersionID}); err != nil {
							return
						}
						ack("s3:ObjectRemoved:Delete", key, info.VersionID)
					}
				}
			})
		}
		for count() < target {
			select {
			case <-s.exited:
				t.Fatalf("the server ended: %s", s.log)
			case <-time.After(time.Millisecond):
			}
		}
		s.kill()
		wg.Wait()
		if round == 1 { // the receiver is up for the last round
			r.mu.Lock()
			r.down = false
			r.mu.Unlock()
		}
		s = start(t, data, "--config", file)
		c = s.client(t)
	}
	for {
		missing := 0
		got := r.has()
		for name := range acked {
			if got[name] == 0 {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		select {
		case <-r.grown:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%d of %d events are missing\n%s", missing, len(acked), s.log)
		}
	}
	twice, strange := 0, 0
	for name, n := range r.has() {
		if n > 1 {
			twice++
		}
		if strings.Contains(name, "/out/") {
			strange++
		}
	}
	if strange > 0 {
		t.Errorf("%d events do not match the filter", strange)
	}
	t.Logf("%d acknowledged changes, %d kinds of events arrived, %d of them more than once", len(acked), len(r.has()),
		twice)
}

// TestAccessLogOfABucket turns the access log of a bucket on and finds the lines as objects, also after a kill.
func TestAccessLogOfABucket(t *testing.T) {
	data := t.TempDir()
	s := start(t, data, "--events-log-interval", "1s")
	c := s.client(t)
	for _, b := range []string{"source", "logs"} {
		if err := c.MakeBucket(t.Context(), b, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	status := func(target, format string) string {
		return `<BucketLoggingStatus xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LoggingEnabled><TargetBucket>` +
			target +
			`</TargetBucket><TargetPrefix>log/</TargetPrefix>` + format + `</LoggingEnabled></BucketLoggingStatus>`
	}
	partitioned := `<TargetObjectKeyFormat><PartitionedPrefix><PartitionDateSource>DeliveryTime</PartitionDateSource>` +
		`</PartitionedPrefix></TargetObjectKeyFormat>`
	for _, try := range []struct{ body, want string }{
		{status("missing", ""), "InvalidTargetBucketForLogging"},
		{status("logs", strings.Replace(partitioned, "DeliveryTime", "never", 1)), "MalformedXML"},
		{"<BucketLoggingStatus><LoggingEnabled/></BucketLoggingStatus>", "MalformedXML"},
		{status("logs", partitioned), ""},
	} {
		code, reply := s.send(t, "PUT", "/source?logging", try.body)
		if (try.want == "") != (code == 200) || !strings.Contains(reply, try.want) {
			t.Fatalf("PUT ?logging %s: status %d, %s, expected %q", try.body, code, reply, try.want)
		}
	}
	if code, reply := s.send(t, "GET", "/source?logging", ""); code != 200 ||
		!strings.Contains(reply, "<TargetBucket>logs<") {
		t.Fatalf("GET ?logging: status %d, %s", code, reply)
	}
	if _, err := c.PutObject(t.Context(), "source", "a b", strings.NewReader("text"), 4, "", "",
		minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	body, _, _, err := c.GetObject(t.Context(), "source", "a b", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
	_, _, _, _ = c.GetObject(t.Context(), "source", "missing", minio.GetObjectOptions{})
	s.kill() // what was collected is delivered after the next start
	s = start(t, data, "--events-log-interval", "1s")
	c = s.client(t)
	want := []string{"REST.PUT.OBJECT a%2520b", "REST.GET.OBJECT a%2520b", "REST.GET.OBJECT missing", "404 NoSuchKey"}
	for {
		var text string
		for o := range c.ListObjectsIter(t.Context(), "logs", minio.ListObjectsOptions{Prefix: "log/" + user +
			"/us-east-1/source/", Recursive: true}) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			body, _, _, err := c.GetObject(t.Context(), "logs", o.Key, minio.GetObjectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(body)
			_ = body.Close()
			text += string(b)
		}
		missing := ""
		for _, w := range want {
			if !strings.Contains(text, w) {
				missing = w
			}
		}
		if missing == "" {
			t.Logf("%s", text)
			return
		}
		select {
		case <-s.exited:
			t.Fatalf("the server ended: %s", s.log)
		case <-t.Context().Done():
			t.Fatalf("%q is missing in:\n%s", missing, text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
