// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/test/effort"
	"github.com/nebulaio/nebulaio/test/gate"
)

// broker runs a Kafka broker behind a gate, which is down at first.
func broker(t *testing.T) *gate.Listener {
	t.Helper()
	g, err := gate.New()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"), kfake.Ports(g.Port()),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return g, nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.Close()
		c.Close()
	})
	return g
}

// up lets the broker answer.
func up(t *testing.T, g *gate.Listener) {
	t.Helper()
	if err := g.Up(); err != nil {
		t.Fatal(err)
	}
}

// sender runs a dispatcher that a test stops.
type sender struct {
	*Dispatcher
	failed chan error
	stop   func()
}

// startSender sends the events of a queue until stop is called, which the test may do itself.
func startSender(t *testing.T, q object.Journal, targets ...Settings) *sender {
	t.Helper()
	d, err := NewDispatcher(q, "store", "r", targets)
	if err != nil {
		t.Fatal(err)
	}
	d.Retry, d.MaxRetry = time.Millisecond, 20*time.Millisecond
	return start(t, d)
}

// start runs a dispatcher, and closes it when the test or stop ends it.
func start(t *testing.T, d *Dispatcher) *sender {
	t.Helper()
	s := &sender{Dispatcher: d, failed: make(chan error, 1)}
	d.Failed = func(_ string, err error) {
		select {
		case s.failed <- err:
		default:
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
		d.Close()
	}()
	s.stop = func() {
		t.Helper()
		cancel()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Fatal("the dispatcher did not end")
		}
	}
	t.Cleanup(s.stop)
	return s
}

func kafkaAt(g *gate.Listener) Settings {
	return Settings{Name: "t", Type: "kafka", Address: []string{g.Address()}, Topic: "events",
		Timeout: 300 * time.Millisecond}
}

// wantEach reads a topic until each of n events has arrived, and checks that the events of a key are in order. The
// events have the sequencers 1 to n.
func wantEach(t *testing.T, address string, n int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("events"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	seen, newest, again := map[string]bool{}, map[string]string{}, 0
	for len(seen) < n {
		fetched := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d events arrived", len(seen), n)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			var e envelope
			if err := json.Unmarshal(r.Value, &e); err != nil || len(e.Records) != 1 {
				t.Fatalf("the record is %s: %v", r.Value, err)
			}
			seq := e.Records[0].S3.Object.Sequencer
			if seen[seq] {
				again++
				return
			}
			if seq < newest[e.Key] {
				t.Errorf("event %s of %s arrived first after event %s", seq, e.Key, newest[e.Key])
			}
			seen[seq], newest[e.Key] = true, seq
		})
	}
	t.Logf("%d events arrived, and %d copies of them", n, again)
}

// TestKafkaBrokerIsDownAtStart begins while no broker runs. Each event arrives when the broker is there.
func TestKafkaBrokerIsDownAtStart(t *testing.T) {
	g, q := broker(t), newQueue()
	for i := range 250 {
		q.add(fmt.Sprint(i%7), object.ChangePut)
	}
	s := startSender(t, q, kafkaAt(g))
	<-s.failed
	<-s.failed
	// A busy machine may not reach the port within the timeout. A later try says that nobody listens.
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(s.Status()[0].LastError, "connection refused"); {
		if <-s.failed; time.Now().After(end) {
			break
		}
	}
	if st := s.Status()[0]; st.Healthy || !strings.Contains(st.LastError, "connection refused") || st.LastTry.IsZero() ||
		st.Failures < 2 || st.Delivered != 0 {
		t.Errorf("the status without a broker is %+v", st)
	}
	up(t, g)
	q.waitAck(t, 250)
	wantEach(t, g.Address(), 250)
	s.stop()
	if st := s.Status()[0]; !st.Healthy || st.Delivered != 250 {
		t.Errorf("the status with a broker is %+v", st)
	}
}

// TestKafkaBrokerIsKilledInMidStream kills the broker while events are on their way, again and again.
func TestKafkaBrokerIsKilledInMidStream(t *testing.T) {
	effort.Slow(t)
	g, q := broker(t), newQueue()
	s := startSender(t, q, kafkaAt(g))
	n := 0
	for round := range 4 {
		up(t, g)
		for range 120 {
			q.add(fmt.Sprint(n%5), object.ChangePut)
			n++
		}
		q.waitAck(t, uint64(n-119)) // at least one event of this round has arrived
		g.Down()
		for range 30 {
			q.add(fmt.Sprint(n%5), object.ChangeDelete)
			n++
		}
		if round%2 == 0 {
			<-s.failed
		}
	}
	up(t, g)
	q.waitAck(t, uint64(n))
	wantEach(t, g.Address(), n)
}

// TestKafkaBrokerThatNeverAnswers keeps connections open without a reply. The events are sent again when the broker
// answers.
func TestKafkaBrokerThatNeverAnswers(t *testing.T) {
	g, q := broker(t), newQueue()
	up(t, g)
	s := startSender(t, q, kafkaAt(g))
	q.add("k", object.ChangePut)
	q.waitAck(t, 1)
	g.Mute()
	for range 50 {
		q.add("k", object.ChangePut)
	}
	<-g.Asked()
	<-s.failed
	g.Down() // the client would wait for the replies that were dropped
	up(t, g)
	q.waitAck(t, 51)
	wantEach(t, g.Address(), 51)
}

// TestADeadKafkaBrokerDoesNotKeepTheServer stops the dispatcher while a broker owes a reply, and while there is no
// broker.
func TestADeadKafkaBrokerDoesNotKeepTheServer(t *testing.T) {
	for name, die := range map[string]func(*gate.Listener){"mute": (*gate.Listener).Mute,
		"killed": (*gate.Listener).Down} {
		t.Run(name, func(t *testing.T) {
			g, q := broker(t), newQueue()
			up(t, g)
			target := kafkaAt(g)
			target.Timeout = 10 * time.Minute // the end of the server must not wait for the timeout
			s := startSender(t, q, target)
			q.add("k", object.ChangePut)
			q.waitAck(t, 1)
			die(g)
			q.add("k", object.ChangePut)
			if name == "mute" {
				<-g.Asked()
			}
			s.stop()
			if st := s.Status()[0]; st.Delivered != 1 {
				t.Errorf("the status is %+v", st)
			}
		})
	}
}
