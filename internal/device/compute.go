// SPDX-License-Identifier: Apache-2.0

package device

import "time"

// The interfaces below are optional. A Queue may implement them, and callers check
// with a type assertion. Loads do not need them; benchmarks do.

// Stepper is a queue that can keep its device busy for a known time, as a step
// of training would.
type Stepper interface {
	// Step queues work that occupies the queue for d, in order with its copies,
	// and returns at once. Zero or less is work that ends when it begins. Kind
	// Unsupported where the device cannot compute; work that fails later is
	// reported by the mark behind it, as failed copies are.
	Step(d time.Duration) error
}

// Timer is a queue that can take the time of a point by the device's own clock.
// Delays of the host are not included.
type Timer interface {
	// NewStamp makes a stamp of this queue. It returns kind Unsupported if the device
	// has no such clock. The caller closes it before the queue.
	NewStamp() (Stamp, error)
}

// Stamp takes the time at which its queue passes a point. It can be recorded again
// and again. One goroutine uses it at a time.
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

// Follower is a queue that can wait for another queue of its device without blocking
// the host.
type Follower interface {
	// Follow delays what is queued from now on until m, a mark of another queue
	// of the same device, has been passed as it is recorded now. It returns at
	// once. A mark never recorded delays nothing; kind Invalid for a mark of
	// another device. An error of the work before m is reported by m alone.
	Follow(m Mark) error
}
