// SPDX-License-Identifier: Apache-2.0

package device

import "time"

// What follows is optional: a Queue may implement it, and who needs it asks
// with a type assertion. No load needs it; measuring does.

// Stepper is a queue that can keep its device busy for a known time, as a step
// of training would.
type Stepper interface {
	// Step queues work that occupies the queue for d, in order with its copies,
	// and returns at once. Zero or less is work that ends when it begins. Kind
	// Unsupported where the device cannot compute; work that fails later is
	// reported by the mark behind it, as failed copies are.
	Step(d time.Duration) error
}

// Timer is a queue that can tell when it passed a point, by a clock of the
// device: what the host sees later, or waits for, is not in it.
type Timer interface {
	// NewStamp makes a stamp of this queue. It returns kind Unsupported if the device
	// has no such clock. The caller closes it before the queue.
	NewStamp() (Stamp, error)
}

// Stamp is a point in a queue whose time is taken when the queue passes it. It
// can be recorded over and over; one goroutine uses it at a time.
type Stamp interface {
	// Record moves the stamp to the end of what is queued now.
	Record() error
	// Since waits until both stamps have been passed and returns the time from
	// the earlier one, of any queue of the same device, to this one: negative
	// when this one was passed first. It returns the first error of the work
	// before them, and kind Invalid for a stamp that was never recorded or is
	// of another device.
	Since(earlier Stamp) (time.Duration, error)
	// Close frees the stamp.
	Close() error
}

// Follower is a queue that can be ordered behind another one of its device
// without the host waiting in between.
type Follower interface {
	// Follow delays what is queued from now on until m, a mark of another queue
	// of the same device, has been passed as it is recorded now. It returns at
	// once. A mark never recorded delays nothing; kind Invalid for a mark of
	// another device. An error of the work before m is reported by m alone.
	Follow(m Mark) error
}
