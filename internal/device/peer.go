// SPDX-License-Identifier: Apache-2.0

package device

// Examiner is implemented by devices that can check an address before bytes move to it.
type Examiner interface {
	// Examine fails with kind Invalid unless the n bytes at p lie inside one living allocation of this device. The error
	// says what is there instead: nothing any more, host memory, memory of another device, or fewer bytes. Examine
	// returns nil if the driver cannot tell. It takes about a microsecond.
	Examine(p Ptr, n int64) error
}

// Peered is implemented by devices that can copy to other devices without the host.
type Peered interface {
	// NewPeerQueue opens a queue of copies from this device's memory to that of
	// other, which the same set opened. Kind Unsupported, with the reason and what to do, where
	// the driver does not let them reach each other. The caller closes it.
	NewPeerQueue(other Device) (PeerQueue, error)
}

// PeerQueue is a queue whose copies also go to one other device.
type PeerQueue interface {
	Queue
	// CopyPeer queues a copy of n bytes at src, on this device, to dst on the other.
	CopyPeer(dst, src Ptr, n int64) error
	// AfterMark delays what is queued from now on until a mark of another queue
	// of this device, as it was last recorded, has been passed.
	AfterMark(m Mark) error
}
