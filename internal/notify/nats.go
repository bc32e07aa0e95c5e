// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// jetStream publishes messages to a subject of NATS JetStream.
type jetStream struct {
	s    Settings
	conf *tls.Config
	conn *nats.Conn
	js   jetstream.JetStream
}

func newNATS(s Settings, conf *tls.Config) *jetStream { return &jetStream{s: s, conf: conf} }

// connect connects to a server, unless the connection exists.
func (n *jetStream) connect() error {
	if n.conn != nil && !n.conn.IsClosed() {
		return nil
	}
	opts := []nats.Option{nats.Name("nebulaio"), nats.Timeout(n.s.Timeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond)}
	if n.conf != nil {
		opts = append(opts, nats.Secure(n.conf))
	}
	switch {
	case n.s.User != "":
		opts = append(opts, nats.UserInfo(n.s.User, n.s.Secret))
	case n.s.Secret != "":
		opts = append(opts, nats.Token(n.s.Secret))
	}
	conn, err := nats.Connect(strings.Join(n.s.Address, ","), opts...)
	if err != nil {
		return errs.Wrap("connect to NATS", n.s.Name, err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return errs.Wrap("connect to NATS", n.s.Name, err)
	}
	n.conn, n.js = conn, js
	return nil
}

// Send implements Target. The acknowledgement of a stream confirms a message. The stream drops a message that it got a
// short time before, by its ID.
func (n *jetStream) Send(ctx context.Context, messages []Message) (int, error) {
	if err := n.connect(); err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, n.s.Timeout)
	defer stop()
	var acks []jetstream.PubAckFuture
	var failed error
	for i := range messages {
		ack, err := n.js.PublishMsgAsync(&nats.Msg{Subject: n.s.Topic, Data: messages[i].Body},
			jetstream.WithMsgID(messages[i].ID))
		if err != nil {
			failed = err
			break
		}
		acks = append(acks, ack)
	}
	for i, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return i, errs.Wrap("send event", n.s.Name, err)
		case <-ctx.Done():
			return i, errs.Wrap("send event", n.s.Name, ctx.Err())
		}
	}
	return len(acks), errs.Wrap("send event", n.s.Name, failed)
}

// Close implements Target.
func (n *jetStream) Close() {
	if n.conn != nil {
		n.conn.Close()
	}
}
