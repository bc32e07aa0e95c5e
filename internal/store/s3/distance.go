// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// RoundTrip returns the shortest round trip to the server that the kernel has measured on the connection of the latest
// Head, or 0 if it is not known. A busy server does not change it.
func (c *Client) RoundTrip() time.Duration { return time.Duration(c.rtt.Load()) }

// measure asks the kernel for the round trip of a connection.
func (c *Client) measure(n net.Conn) {
	t := tcpOf(n)
	if t == nil {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // a closed connection tells nothing
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.Min_rtt > 0 {
			c.rtt.Store(int64(info.Min_rtt) * int64(time.Microsecond))
		}
	})
}

// tcpOf returns the TCP connection below a connection of a Client, or nil.
func tcpOf(n net.Conn) *net.TCPConn {
	if s, ok := n.(*tls.Conn); ok {
		n = s.NetConn()
	}
	if c, ok := n.(*conn); ok {
		n = c.Conn
	}
	t, _ := n.(*net.TCPConn)
	return t
}

// LimitReadAhead limits the bytes that the kernel receives ahead of each reader of the Object. Bytes that were received
// and not read are lost if the process is killed. On a long way, a limit makes reads slow. LimitReadAhead must be
// called before the first Fetch.
func (o *Object) LimitReadAhead(n int) { o.ahead = n }

func (o *Object) limitAhead(n net.Conn) {
	if t := tcpOf(n); t != nil {
		_ = t.SetReadBuffer(o.ahead) // only a limit of what a kill loses
	}
}
