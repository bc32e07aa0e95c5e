// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"container/list"
	"maps"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Limits of what is remembered about uploads.
const (
	mostUploads = 4096
	mostMemory  = 200_000 // parts of all uploads together
	mostDone    = 1024
)

// upload is what is known about an upload that is beyond what S3 tells about it.
type upload struct {
	key, id    string
	started    time.Time
	attributes map[string]string
	// algorithm and kind are the checksum that the client chose; upstream means that the upstream knows it.
	algorithm, kind string
	upstream        bool
	// forgotten means that the upload was begun before a restart, and the upstream does not tell its checksum.
	forgotten bool
	parts     map[int]object.PartInfo
}

// uploadMemory remembers uploads that were begun here, and what they became. S3 does not return the attributes of an
// upload, and some servers do not keep the checksums of parts. A restart forgets them: then only what the upstream
// tells is known.
type uploadMemory struct {
	mu    sync.Mutex
	byID  map[string]*list.Element // of *upload
	order *list.List               // most recently used first
	parts int
	done  map[string]finished // by key
}

// finished is the result of an upload.
type finished struct {
	etag       string
	attributes map[string]string // object.AttrUpload and object.AttrUploadParts
}

func newUploadMemory() *uploadMemory {
	return &uploadMemory{byID: map[string]*list.Element{}, order: list.New(), done: map[string]finished{}}
}

func (m *uploadMemory) add(u *upload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.parts == nil {
		u.parts = map[int]object.PartInfo{}
	}
	m.remove(u.id)
	m.byID[u.id] = m.order.PushFront(u)
	m.shrink()
}

// shrink forgets the uploads that were not used for the longest time. The caller holds mu.
func (m *uploadMemory) shrink() {
	for m.order.Len() > mostUploads || m.parts > mostMemory && m.order.Len() > 1 {
		m.remove(m.order.Back().Value.(*upload).id)
	}
}

// remove forgets an upload. The caller holds mu.
func (m *uploadMemory) remove(id string) {
	if e, ok := m.byID[id]; ok {
		m.parts -= len(e.Value.(*upload).parts)
		m.order.Remove(e)
		delete(m.byID, id)
	}
}

func (m *uploadMemory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(id)
}

// get returns a copy of what is known about an upload, without its parts.
func (m *uploadMemory) get(key, id string) (upload, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byID[id]
	if !ok || e.Value.(*upload).key != key {
		return upload{}, false
	}
	m.order.MoveToFront(e)
	u := *e.Value.(*upload)
	u.attributes, u.parts = maps.Clone(u.attributes), nil
	return u, true
}

// put remembers a part.
func (m *uploadMemory) put(id string, p object.PartInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byID[id]
	if !ok {
		return
	}
	u := e.Value.(*upload)
	if _, had := u.parts[p.Number]; !had {
		m.parts++
	}
	p.Attributes = maps.Clone(p.Attributes)
	u.parts[p.Number] = p
	m.shrink()
}

// fill adds to a part of a listing what is known about the same part.
func (m *uploadMemory) fill(id string, p *object.PartInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byID[id]
	if !ok {
		return
	}
	own, ok := e.Value.(*upload).parts[p.Number]
	if !ok || own.ETag != p.ETag || own.Size != p.Size {
		return
	}
	p.CRC64 = own.CRC64
	if p.Attributes == nil {
		p.Attributes = maps.Clone(own.Attributes)
	}
}

// complete remembers what an upload became.
func (m *uploadMemory) complete(key, id, etag string, attributes map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(id)
	if len(m.done) >= mostDone {
		clear(m.done)
	}
	m.done[key] = finished{etag, map[string]string{object.AttrUpload: attributes[object.AttrUpload],
		object.AttrUploadParts: attributes[object.AttrUploadParts]}}
}

// restore adds the attributes of the upload that made an object.
func (m *uploadMemory) restore(key, etag string, attributes map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.done[key]; ok && f.etag == etag {
		maps.Copy(attributes, f.attributes)
	}
}
