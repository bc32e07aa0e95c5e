// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"net"
	"sync"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// traffic counts the requests of one object; nil counts nothing.
type traffic struct {
	mu       sync.Mutex
	requests int64
	retries  int64
	conns    map[net.Conn]struct{}
}

func (t *traffic) request() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
}

func (t *traffic) retry() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retries++
}

// mostConns limits the connections that are remembered for an object.
const mostConns = 4096

func (t *traffic) connection(c net.Conn) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns = map[net.Conn]struct{}{}
	}
	if len(t.conns) < mostConns {
		t.conns[c] = struct{}{}
	}
}

func (t *traffic) count() vfs.Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return vfs.Traffic{Requests: t.requests, Retries: t.retries, Connections: int64(len(t.conns))}
}
