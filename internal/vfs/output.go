// SPDX-License-Identifier: Apache-2.0

package vfs

import "sync/atomic"

// output is the part that a Replacement and a Sink share: an open file of known size, and the rules for its direct
// writes.
type output struct {
	size     int64
	fs       FSType
	storage  lookedUp
	buffered int
	direct   int // -1 if direct writes are refused
	align    Alignment
	refused  atomic.Pointer[Refusal]
}

// refuse records why direct writes are refused. The first reason stays.
func (o *output) refuse(reason, fix string) {
	o.refused.CompareAndSwap(nil, &Refusal{Reason: reason, Fix: fix})
}

// Size returns the length in bytes that the file will have.
func (o *output) Size() int64 { return o.size }

// FS returns the name of the file system and whether it keeps files in memory.
func (o *output) FS() FSType { return o.fs }

// Align returns the alignment that writes with O_DIRECT need, or zero if O_DIRECT is refused.
func (o *output) Align() Alignment { return o.align }

// Direct reports whether the file can be written with O_DIRECT; if false, why gives the reason.
func (o *output) Direct() (ok bool, why *Refusal) {
	if r := o.refused.Load(); r != nil {
		return false, r
	}
	return o.direct >= 0, nil
}
