// SPDX-License-Identifier: Apache-2.0

package device

import "time"

// The interfaces below are optional. A Queue may implement them, and callers check with a type assertion. Only
// benchmarks need them.

// Stepper is a queue that can keep its device busy for a given time, to simulate a training step.
type Stepper interface {
	// Step queues work that occupies the queue for the time d, in order with its copies, and returns at once. If d is
	// 0 or less, the work ends when it begins. Step fails with kind Unsupported if the device cannot run kernels. If
	// the work fails later, the next mark of the queue returns the error.
	Step(d time.Duration) error
}

// Timer is a queue that can measure time with the device's own clock, without delays of the host.
type Timer interface {
	// NewStamp creates a stamp of this queue. NewStamp fails with kind Unsupported if the device has no clock of its
	// own. The caller closes the stamp before the queue.
	NewStamp() (Stamp, error)
}

// Stamp measures the time at which its queue reaches a point. A Stamp can be recorded many times. Only one goroutine
// may use a Stamp at a time.
type Stamp interface {
	// Record places the stamp after all work that is queued now.
	Record() error
	// Since waits until both stamps are reached, and returns the time from earlier to this stamp. The two stamps may
	// belong to different queues of the same device. The time is negative if this stamp was reached first. Since
	// returns the first error of the work before the stamps. Since fails with kind Invalid if a stamp was never
	// recorded, or if earlier is of another device.
	Since(earlier Stamp) (time.Duration, error)
	// Close frees the stamp's resources.
	Close() error
}

// Follower is a queue that can wait for another queue of its device without blocking
// the host.
type Follower interface {
	// Follow makes all later work of this queue wait for the work before m, and returns at once. The mark m belongs
	// to another queue of the same device. Only the present position of m counts: recording m again later changes
	// nothing. If m was never recorded, nothing is delayed. Follow fails with kind Invalid if m is of another device.
	// An error of the work before m is returned only by m itself.
	Follow(m Mark) error
}
