// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// kafka produces messages to a topic of Apache Kafka. The key of a message is the bucket and key of its object, so that
// the events of one object go to one partition and stay in order.
type kafka struct {
	s      Settings
	client *kgo.Client
	dialed *dials
}

// leastRecordTimeout is the shortest timeout of records that the client accepts. Send also ends after a shorter
// timeout.
const leastRecordTimeout = time.Second

// dials keeps the error of the last connection to a broker, which the errors of records do not name.
type dials struct{ last atomic.Pointer[error] }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (d *dials) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		d.last.Store(nil)
		return
	}
	d.last.Store(&err)
}

func newKafka(s Settings, conf *tls.Config) (*kafka, error) {
	dialed := &dials{}
	opts := []kgo.Opt{kgo.SeedBrokers(s.Address...), kgo.DefaultProduceTopic(s.Topic), kgo.ClientID("nebulaio"),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DialTimeout(s.Timeout),
		kgo.RecordDeliveryTimeout(max(s.Timeout, leastRecordTimeout)), kgo.UnknownTopicRetries(1), kgo.WithHooks(dialed),
		// Without this option, a record that is on its way to a dead broker keeps Send from ending. The queue sends such a
		// record again, and the receiver can find it twice.
		kgo.AllowIdempotentProduceCancellation(),
		// A broker that is back is found after a second, and not after 5 s.
		kgo.MetadataMinAge(time.Second)}
	if s.TLS {
		if conf == nil {
			conf = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	login := scram.Auth{User: s.User, Pass: s.Secret}
	switch s.SASL {
	case "plain":
		opts = append(opts, kgo.SASL(plain.Auth{User: s.User, Pass: s.Secret}.AsMechanism()))
	case "scram-sha-256":
		opts = append(opts, kgo.SASL(login.AsSha256Mechanism()))
	case "scram-sha-512":
		opts = append(opts, kgo.SASL(login.AsSha512Mechanism()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, errs.Wrap("open event target", "event_target."+s.Name, err)
	}
	return &kafka{s: s, client: client, dialed: dialed}, nil
}

// Send implements Target. The acknowledgement of all in-sync replicas confirms a message.
func (k *kafka) Send(ctx context.Context, messages []Message) (int, error) {
	ctx, stop := context.WithTimeout(ctx, k.s.Timeout)
	defer stop()
	records := make([]*kgo.Record, len(messages))
	for i := range messages {
		records[i] = &kgo.Record{Key: []byte(messages[i].Key), Value: messages[i].Body,
			Headers: []kgo.RecordHeader{{Key: "nebulaio-event-id", Value: []byte(messages[i].ID)}}}
	}
	failed := make(map[*kgo.Record]error, 1)
	for _, r := range k.client.ProduceSync(ctx, records...) {
		if r.Err != nil {
			failed[r.Record] = r.Err
		}
	}
	for i, r := range records {
		if err := failed[r]; err != nil {
			if dial := k.dialed.last.Load(); dial != nil {
				err = fmt.Errorf("%w: %w", err, *dial)
			}
			return i, errs.Wrap("send event", k.s.Name, err)
		}
	}
	return len(records), nil
}

// Close implements Target.
func (k *kafka) Close() { k.client.Close() }
