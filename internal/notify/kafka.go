// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"crypto/tls"

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
}

func newKafka(s Settings, conf *tls.Config) (*kafka, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(s.Address...), kgo.DefaultProduceTopic(s.Topic), kgo.ClientID("nebulaio"),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordDeliveryTimeout(s.Timeout), kgo.DialTimeout(s.Timeout),
		kgo.UnknownTopicRetries(1)}
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
	return &kafka{s: s, client: client}, nil
}

// Send implements Target. The acknowledgement of all in-sync replicas confirms a message.
func (k *kafka) Send(ctx context.Context, messages []Message) (int, error) {
	ctx, stop := context.WithTimeout(ctx, 2*k.s.Timeout)
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
			return i, errs.Wrap("send event", k.s.Name, err)
		}
	}
	return len(records), nil
}

// Close implements Target.
func (k *kafka) Close() { k.client.Close() }
