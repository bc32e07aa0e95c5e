// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/nebulaio/nebulaio/test/gate"
)

// setDocument puts a document of a bucket, such as its notification.
func (p *process) setDocument(bucket, what, text string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPut, p.Endpoint+"/"+bucket+"?"+what,
		strings.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	resp, err := http.DefaultClient.Do(signer.SignV4(*req, p.AccessKey, p.SecretKey, "", p.Region))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if reply, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		p.t.Fatalf("PUT %s?%s: %s\n%s", bucket, what, resp.Status, reply)
	}
}

// newGate returns a gate that is down.
func newGate(t *testing.T) *gate.Listener {
	t.Helper()
	g, err := gate.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "server.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (p *process) mustStop() {
	p.t.Helper()
	if code := p.stop(syscall.SIGTERM); code != 0 {
		p.t.Fatalf("exit code %d\n%s", code, p.log)
	}
}

// TestEventsStatus looks at a target that works and at a Kafka broker that is down, with a server and without one.
// Writes go on while the broker is down, its queue stays bounded, and the server ends.
func TestEventsStatus(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	g, dir := newGate(t), t.TempDir()
	file := configFile(t,
		fmt.Sprintf("events:\n  queue_limit: 5\nevent_target:\n  hook:\n    type: webhook\n    address: [%q]\n"+
			"  stream:\n    type: kafka\n    topic: events\n    timeout: 200ms\n    address: [%q]\n",
			receiver.URL+"/in?token=hidden",
			g.Address()))
	status := func(more ...string) eventsJSON {
		t.Helper()
		r := run(t, append([]string{"events", "status", "--data", dir, "--json"}, more...))
		if r.want(t, 0); strings.Contains(r.out, "hidden") {
			t.Errorf("the status shows a secret: %s", r.out)
		}
		return decode[eventsJSON](t, r)
	}
	p := startServer(t, dir, nil, "--config", file)
	c := p.client(p.AccessKey, p.SecretKey)
	for bucket, target := range map[string]string{"hooked": "hook:webhook", "streamed": "stream:kafka"} {
		if err := c.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		p.setDocument(bucket, "notification", `<NotificationConfiguration><QueueConfiguration><Id>all</Id><Queue>`+
			`arn:nebulaio:sqs::`+target+`</Queue><Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>`)
		for i := range 12 {
			put(t, c, bucket, fmt.Sprint(i), []byte("text"))
		}
	}
	var v eventsJSON
	until(t, "a full queue", func() bool {
		v = status()
		return v.Targets[0].Waiting == 0 && v.Targets[1].Waiting == 5 && v.Targets[1].SinceStart.Failures > 0
	})
	hook, stream := v.Targets[0], v.Targets[1]
	if !v.Running || len(v.Targets) != 2 || hook.Target != "hook" || hook.Type != "webhook" || hook.Full ||
		hook.Address[0] != receiver.URL+"/..." || !hook.SinceStart.Healthy || !hook.Oldest.IsZero() ||
		hook.SinceStart.Delivered+hook.Lost != 12 {
		t.Errorf("the webhook is %+v, since the start %+v", hook, hook.SinceStart)
	}
	if !stream.Full || stream.Limit != 5 || stream.Lost != 7 || stream.Oldest.IsZero() || stream.OldestAge <= 0 ||
		stream.SinceStart.Delivered != 0 || stream.SinceStart.Healthy || stream.SinceStart.LastErrorAt.IsZero() ||
		!strings.Contains(stream.SinceStart.LastError, "connection refused") {
		t.Errorf("the broker is %+v, since the start %+v", stream, stream.SinceStart)
	}
	r := run(t, []string{"events", "status", "--data", dir})
	r.want(t, 0, "hook    webhook  "+receiver.URL+"/...", "stream  kafka    "+g.Address(), " failing", " working",
		"full      stream: 5 changes of at most 5 wait", "fix: mend the target", "error     stream at 2",
		"connection refused")
	p.mustStop()

	v = status("--config", file)
	if v.Running || len(v.Targets) != 2 || v.Targets[1].SinceStart != nil || v.Targets[1].Waiting != 5 ||
		!v.Targets[1].Full {
		t.Errorf("without a server: %+v", v)
	}
	run(t, []string{"events", "status", "--data", dir}).want(t, 0, "server    not running", "stream  unknown",
		"unknown   stream: the configuration has no such target", "fix: add event_target.stream")
	run(t, []string{"events", "status", "--data", t.TempDir()}).want(t, 3, "holds no object store")
}

// TestReplicationStatus looks at a bucket whose target is down and comes back, with a server and without one.
func TestReplicationStatus(t *testing.T) {
	there, dir, g := startServer(t, t.TempDir(), nil), t.TempDir(), newGate(t)
	to, err := url.Parse(there.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &http.Server{Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // a part of the signature
	}}}
	go func() { _ = proxy.Serve(g) }()
	defer proxy.Close()
	file := configFile(t, "replication:\n  there:\n    endpoint: http://"+g.Address()+"\n    access_key_env: THERE_USER\n"+
		"    secret_key_env: THERE_SECRET\n")
	env := []string{"THERE_USER=" + there.AccessKey, "THERE_SECRET=" + there.SecretKey}
	here := startServer(t, dir, env, "--config", file)
	for p, bucket := range map[*process]string{here: "photos", there: "copies"} {
		c := p.client(p.AccessKey, p.SecretKey)
		if err := c.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.EnableVersioning(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
	}
	run(t, []string{"replication", "status", "--data", dir}).want(t, 0, "no bucket is replicated")
	here.setDocument("photos", "replication",
		`<ReplicationConfiguration><Role>any</Role><Rule><ID>all</ID><Status>Enabled</Status>`+
			`<Priority>1</Priority><Filter><Prefix></Prefix></Filter><DeleteMarkerReplication><Status>Enabled</Status>`+
			`</DeleteMarkerReplication><Destination><Bucket>arn:nebulaio:replication::there:copies</Bucket></Destination></Rule>`+
			`</ReplicationConfiguration>`)
	c := here.client(here.AccessKey, here.SecretKey)
	for range 3 {
		put(t, c, "photos", "key", []byte("text"))
	}
	status := func() replicationJSON {
		return decode[replicationJSON](t, run(t, []string{"replication", "status", "photos", "--data", dir, "--json"}))
	}
	var v replicationJSON
	until(t, "a failed try", func() bool {
		v = status()
		return len(v.Links) == 1 && v.Links[0].SinceStart != nil && v.Links[0].SinceStart.Failures > 0
	})
	l := v.Links[0]
	if !v.Running || l.Bucket != "photos" || l.Target != "there" || l.To != "copies" || l.Waiting != 3 || l.Full ||
		l.Endpoint != "http://"+g.Address() || l.OldestAge <= 0 || l.SinceStart.Healthy || l.SinceStart.Replicated != 0 ||
		!strings.Contains(l.SinceStart.LastError, "connection refused") || l.SinceStart.LastErrorAt.IsZero() {
		t.Errorf("while the target is down: %+v, since the start %+v", l, l.SinceStart)
	}
	run(t, []string{"replication", "status", "--data", dir}).want(t, 0, "photos  there/copies  http://"+g.Address(),
		" failing", "error     photos to there/copies at 2")
	run(t, []string{"replication", "status", "other", "--data", dir}).want(t, 3, "show the replication of other",
		"nebulaio replication status")
	here.mustStop()
	r := run(t, []string{"replication", "status", "--data", dir, "--config", file})
	r.want(t, 0, "server    not running", "photos  there/copies  http://"+g.Address(), "not replicated")
	if v = status(); v.Running || v.Links[0].Waiting != 3 || v.Links[0].SinceStart != nil {
		t.Errorf("without a server: %+v", v)
	}

	if err := g.Up(); err != nil {
		t.Fatal(err)
	}
	here = startServer(t, dir, env, "--config", file)
	until(t, "the copies", func() bool {
		v = status()
		return v.Links[0].Waiting == 0
	})
	if n := v.Links[0].SinceStart; n.Replicated != 3 || n.Failed != 0 {
		t.Errorf("after the copies: %+v", n)
	}
	here.mustStop()
	there.mustStop()
}

// TestUserSessions lists sessions with a server and without one, and ends them for good.
func TestUserSessions(t *testing.T) {
	dir := t.TempDir()
	p := startServer(t, dir, nil)
	added := decode[userJSON](t, run(t, []string{"user", "add", "alice", "--role", "userplus", "--data", dir, "--json"}))
	begin := func(policy, name string) credentials.Value {
		t.Helper()
		c, err := credentials.NewSTSAssumeRole(p.Endpoint, credentials.STSAssumeRoleOptions{AccessKey: "alice",
			SecretKey: added.Secret, Policy: policy, RoleARN: "arn:aws:iam::000000000000:role/trainer", RoleSessionName: name,
			Location: p.Region})
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.GetWithContext(nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	works := func(v credentials.Value) error {
		c, err := minio.New(strings.TrimPrefix(p.Endpoint, "http://"), &minio.Options{Region: p.Region,
			Creds: credentials.NewStaticV4(v.AccessKeyID, v.SecretAccessKey, v.SessionToken)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.ListBuckets(t.Context())
		return err
	}
	list := func(args ...string) sessionsJSON {
		t.Helper()
		r := run(t, append([]string{"user", "session", "list", "--data", dir, "--json"}, args...))
		r.want(t, 0)
		if strings.Contains(r.out, "secret") || strings.Contains(r.out, "token") {
			t.Errorf("the list shows a secret: %s", r.out)
		}
		return decode[sessionsJSON](t, r)
	}
	run(t, []string{"user", "session", "list", "--data", dir}).want(t, 0, "there are no sessions")
	first := begin(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`, "day")
	second := begin("", "night")
	for _, v := range []credentials.Value{first, second} {
		if err := works(v); err != nil {
			t.Fatal(err)
		}
	}
	v := list("alice")
	if len(v.Sessions) != 2 || !v.Running {
		t.Fatalf("the sessions are %+v", v)
	}
	for _, s := range v.Sessions {
		limited := s.AccessKey == first.AccessKeyID
		if s.User != "alice" || s.Source != "AssumeRole" || s.Role != "trainer" || s.SessionPolicy != limited ||
			(s.Name == "day") != limited || s.Issued.IsZero() || !s.Expires.After(s.Issued) {
			t.Errorf("the session is %+v", s)
		}
	}
	run(t, []string{"user", "session", "list", "nobody", "--data", dir}).want(t, 3, "list the sessions of nobody")
	run(t, []string{"user", "session", "revoke", "alice", "--access-key", "ASIANONE", "--data", dir}).want(t, 3,
		"ASIANONE", "nebulaio user session list")
	run(t, []string{"user", "session", "revoke", "alice", "--access-key", first.AccessKeyID, "--data", dir}).want(t, 0,
		"ended     1 session of alice")
	if works(first) == nil || works(second) != nil {
		t.Error("the wrong session was ended")
	}
	p.mustStop()

	if v = list(); v.Running || len(v.Sessions) != 1 || v.Sessions[0].AccessKey != second.AccessKeyID {
		t.Errorf("without a server: %+v", v)
	}
	run(t, []string{"user", "session", "list", "--data", dir}).want(t, 0, "server    not running", second.AccessKeyID,
		"night")
	run(t, []string{"user", "session", "revoke", "alice", "--data", dir}).want(t, 0, "ended     1 session of alice")
	p = startServer(t, dir, nil)
	if works(first) == nil || works(second) == nil {
		t.Error("the keys of an ended session work after a restart")
	}
	if v = list(); len(v.Sessions) != 0 {
		t.Errorf("the sessions are %+v", v)
	}
	run(t, []string{"user", "session", "revoke", "alice", "--data", dir}).want(t, 0, "ended     0 sessions of alice")
	p.mustStop()
}
