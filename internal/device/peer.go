// SPDX-License-Identifier: Apache-2.0

package device

// Examiner is implemented by devices that can check an address before bytes move to it.
type Examiner interface {
	// Examine fails with kind Invalid if the n bytes at address p are not within one allocation of this device. The
	// error of Examine names the reason: freed memory, host memory, memory of another device, or a smaller
	// allocation. Examine returns nil if the driver cannot check the address. A call of Examine takes about a
	// microsecond.
	Examine(p Ptr, n int64) error
}

// Bounder is implemented by devices that know the bounds of an allocation.
type Bounder interface {
	// Bounds returns the first address and the size in bytes of the allocation with address p. The size is 0 if the
	// driver does not know the bounds. A call of Bounds takes about a microsecond.
	Bounds(p Ptr) (start Ptr, size int64, err error)
}

// Peered is implemented by devices that can copy bytes to another device.
type Peered interface {
	// NewPeerQueue creates a queue of copies from this device to the device in the parameter other, which belongs to
	// the same set. NewPeerQueue fails with kind Unsupported, the reason and a fix if the driver allows no peer
	// access between the two devices. The caller of NewPeerQueue closes the queue.
	NewPeerQueue(other Device) (PeerQueue, error)
}

// PeerQueue is a queue that can also copy to one other device.
type PeerQueue interface {
	Queue
	// CopyPeer queues a copy of n bytes from src on this device to dst on the other device.
	CopyPeer(dst, src Ptr, n int64) error
	// AfterMark makes all later work of this queue wait for the work before the mark m. The mark m belongs to another
	// queue of this device.
	AfterMark(m Mark) error
}
