// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/test/gate"
)

// queue is a journal in memory.
type queue struct {
	mu      sync.Mutex
	entries []object.JournalEntry
	grown   chan struct{}
	acked   chan uint64
}

func newQueue() *queue { return &queue{grown: make(chan struct{}, 1), acked: make(chan uint64, 1000)} }

func (q *queue) add(key string, kind object.ChangeKind) {
	q.mu.Lock()
	defer q.mu.Unlock()
	seq := uint64(1)
	if n := len(q.entries); n > 0 {
		seq = q.entries[n-1].Seq + 1
	}
	q.entries = append(q.entries, object.JournalEntry{Seq: seq, Time: time.UnixMilli(1700000000123), Kind: kind,
		Bucket: "b", Owner: "owner", Key: key, Version: "v1", Versioned: true, Size: 3, ETag: "e", Label: "id",
		By: object.Requester{Principal: "ann", Remote: "10.0.0.1", RequestID: "R", HostID: "H"}})
	select {
	case q.grown <- struct{}{}:
	default:
	}
}

func (q *queue) ReadJournal(_ context.Context, _ string, after uint64, limit int) ([]object.JournalEntry, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []object.JournalEntry
	for _, e := range q.entries {
		if e.Seq > after && len(out) < limit && e.Kind != "acked" {
			out = append(out, e)
		}
	}
	return out, nil
}

func (q *queue) AckJournal(_ context.Context, _ string, through uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.entries {
		if q.entries[i].Seq <= through {
			q.entries[i].Kind = "acked"
		}
	}
	q.acked <- through
	return nil
}

func (q *queue) WaitJournal(ctx context.Context, consumer string, after uint64) error {
	for {
		if some, _ := q.ReadJournal(ctx, consumer, after, 1); len(some) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.grown:
		}
	}
}

func (q *queue) JournalQueues(context.Context) ([]object.JournalQueue, error) { return nil, nil }
func (q *queue) ForgetJournal(context.Context, string) error                  { return nil }

// waitAck waits until the entries up to a number were acknowledged.
func (q *queue) waitAck(t *testing.T, seq uint64) {
	t.Helper()
	for {
		select {
		case n := <-q.acked:
			if n >= seq {
				return
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("event %d was not confirmed", seq)
		}
	}
}

// queues are journals in memory by the names of their consumers.
type queues map[string]*queue

func (q queues) ReadJournal(ctx context.Context, consumer string, after uint64,
	limit int) ([]object.JournalEntry, error) {
	return q[consumer].ReadJournal(ctx, consumer, after, limit)
}

func (q queues) AckJournal(ctx context.Context, consumer string, through uint64) error {
	return q[consumer].AckJournal(ctx, consumer, through)
}

func (q queues) WaitJournal(ctx context.Context, consumer string, after uint64) error {
	return q[consumer].WaitJournal(ctx, consumer, after)
}

func (q queues) JournalQueues(context.Context) ([]object.JournalQueue, error) { return nil, nil }
func (q queues) ForgetJournal(context.Context, string) error                  { return nil }

func TestARecordIsThatOfS3(t *testing.T) {
	q := newQueue()
	q.add("a b/ü", object.ChangePut)
	m, err := newMessage("store", "eu-west-1", &q.entries[0])
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"EventName":"s3:ObjectCreated:Put","Key":"b/a b/ü","Records":[{"eventVersion":"2.1","eventSource":"aws:s3",` +
		`"awsRegion":"eu-west-1","eventTime":"2023-11-14T22:13:20.123Z","eventName":"ObjectCreated:Put",` +
		`"userIdentity":{"principalId":"ann"},"requestParameters":{"sourceIPAddress":"10.0.0.1"},` +
		`"responseElements":{"x-amz-id-2":"H","x-amz-request-id":"R"},"s3":{"s3SchemaVersion":"1.0","configurationId":"id",` +
		`"bucket":{"name":"b","ownerIdentity":{"principalId":"owner"},"arn":"arn:aws:s3:::b"},` +
		`"object":{"key":"a+b%2F%C3%BC","size":3,"eTag":"e","versionId":"v1","sequencer":"0000000000000001"}}}]}`
	if string(m.Body) != want {
		t.Errorf("the record is\n%s\nexpected\n%s", m.Body, want)
	}
}

func TestEachKindHasItsName(t *testing.T) {
	for kind, want := range map[object.ChangeKind]string{
		object.ChangePut: "ObjectCreated:Put", object.ChangePost: "ObjectCreated:Post",
		object.ChangeCopy:     "ObjectCreated:Copy",
		object.ChangeComplete: "ObjectCreated:CompleteMultipartUpload", object.ChangeAppend: "ObjectCreated:Put",
		object.ChangeRename: "ObjectCreated:Put", object.ChangeRenamed: "ObjectRemoved:Delete",
		object.ChangeDelete: "ObjectRemoved:Delete", object.ChangeMarker: "ObjectRemoved:DeleteMarkerCreated",
		object.ChangeTags: "ObjectTagging:Put", object.ChangeUntag: "ObjectTagging:Delete", object.ChangeACL: "ObjectAcl:Put",
		object.ChangeRetention: "ObjectCreated:PutRetention", object.ChangeHold: "ObjectCreated:PutLegalHold",
	} {
		if got := NameOf(&object.JournalEntry{Kind: kind}); got != want {
			t.Errorf("%s: %s, expected %s", kind, got, want)
		}
	}
	by := object.Requester{Principal: object.PrincipalLifecycle}
	if got := NameOf(&object.JournalEntry{Kind: object.ChangeMarker,
		By: by}); got != "LifecycleExpiration:DeleteMarkerCreated" {
		t.Errorf("a marker by lifecycle: %s", got)
	}
}

// TestWebhookThatIsDown begins while nobody listens, and then gets every event in order.
func TestWebhookThatIsDown(t *testing.T) {
	l, err := gate.New() // the receiver is down, and keeps its port
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	q := newQueue()
	for i := range 250 {
		q.add(fmt.Sprint(i), object.ChangePut)
	}
	failed := make(chan struct{}, 100)
	s := Settings{Name: "t", Type: "webhook", Address: []string{"http://" + l.Address()}, Secret: "Bearer x",
		Timeout: 10 * time.Second}
	d, err := NewDispatcher(q, "store", "r", []Settings{s})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Retry, d.MaxRetry = time.Millisecond, 5*time.Millisecond
	d.Failed = func(string, error) {
		select {
		case failed <- struct{}{}:
		default:
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	<-failed
	<-failed
	if st := d.Status()[0]; st.Healthy || st.LastError == "" || st.Failures < 2 || st.Delivered != 0 {
		t.Errorf("status of a target that is down: %+v", st)
	}
	var mu sync.Mutex
	var got []string
	refuse := 5
	up(t, l)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var e envelope
		mu.Lock()
		defer mu.Unlock()
		if json.Unmarshal(b, &e) != nil || r.Header.Get("Authorization") != "Bearer x" || refuse > 0 {
			refuse--
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		got = append(got, e.Key)
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	q.waitAck(t, 250)
	stop()
	<-done
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 250 || got[0] != "b/0" || got[249] != "b/249" {
		t.Errorf("%d events, from %s to %s", len(got), got[0], got[len(got)-1])
	}
	if st := d.Status()[0]; !st.Healthy || st.Delivered != 250 {
		t.Errorf("status %+v", st)
	}
}

// natsServer runs a NATS server with JetStream in this process.
func natsServer(t *testing.T, port int, dir string) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true,
		NoSigs: true, Username: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server is not ready")
	}
	return s
}

// TestNATS publishes to a real NATS server, which is stopped for a while.
func TestNATS(t *testing.T) {
	dir := t.TempDir()
	s := natsServer(t, server.RANDOM_PORT, dir)
	port := s.Addr().(*net.TCPAddr).Port
	open := func() (*nats.Conn, jetstream.JetStream) {
		conn, err := nats.Connect(s.ClientURL(), nats.UserInfo("u", "p"), nats.Timeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return conn, js
	}
	conn, js := open()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S",
		Subjects: []string{"store.>"}}); err != nil {
		t.Fatal(err)
	}
	q := newQueue()
	startSender(t, q, Settings{Name: "t", Type: "nats", Address: []string{s.ClientURL()}, Topic: "store.events", User: "u",
		Secret: "p", Timeout: 5 * time.Second})
	for i := range 150 {
		q.add(fmt.Sprint(i), object.ChangePut)
	}
	q.waitAck(t, 150)
	conn.Close()
	s.Shutdown()
	s.WaitForShutdown()
	for i := range 50 {
		q.add(fmt.Sprint(150+i), object.ChangeDelete)
	}
	s = natsServer(t, port, dir)
	defer s.Shutdown()
	q.waitAck(t, 200)
	conn, js = open()
	defer conn.Close()
	stream, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var e envelope
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Key)
	}
	wantKeys(t, got, 200)
}

// wantKeys checks that each key arrived, in order for those that arrived first.
func wantKeys(t *testing.T, got []string, n int) {
	t.Helper()
	var first []string
	for _, k := range got {
		if !slices.Contains(first, k) {
			first = append(first, k)
		}
	}
	if len(first) != n {
		t.Fatalf("%d of %d events arrived", len(first), n)
	}
	for i, k := range first {
		if k != fmt.Sprintf("b/%d", i) {
			t.Fatalf("event %d is %s", i, k)
		}
	}
}

// TestKafka produces to a server of the Kafka protocol.
func TestKafka(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "u", "p"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := newQueue()
	startSender(t, q, Settings{Name: "t", Type: "kafka", Address: c.ListenAddrs(), Topic: "events", SASL: "scram-sha-256",
		User: "u", Secret: "p", Timeout: 5 * time.Second})
	for i := range 150 {
		q.add(fmt.Sprint(i), object.ChangePut)
	}
	q.waitAck(t, 150)
	got := consume(t, c.ListenAddrs(), 150)
	wantKeys(t, got, 150)
}

func consume(t *testing.T, addresses []string, n int) []string {
	t.Helper()
	s := Settings{Name: "reader", Type: "kafka", Address: addresses, Topic: "events", SASL: "scram-sha-256", User: "u",
		Secret: "p", Timeout: 5 * time.Second}
	k, err := newKafka(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.client.AddConsumeTopics("events")
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var keys []string
	for len(keys) < n && ctx.Err() == nil {
		k.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { keys = append(keys, string(r.Key)) })
	}
	return keys
}

func TestWrongTargetsAreRefused(t *testing.T) {
	for _, s := range []Settings{
		{Name: "a", Type: "sqs"},
		{Name: "a", Type: "webhook", CAFile: "/no/such/file"},
		{Name: "a", Type: "kafka", CAFile: "notify_test.go", Address: []string{"h:1"}, TLS: true},
	} {
		if _, err := Open(s); err == nil || !strings.Contains(err.Error(), "a") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
