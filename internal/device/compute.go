// SPDX-License-Identifier: Apache-2.0

package device

import "time"

// The interfaces below are optional. A Queue may implement them, and callers check with a type assertion. Only
// benchmarks need them.

// Stepper is a queue that can keep its device busy for a given time, to simulate a training step.
type Stepper interface {
	// Step queues work that occupies the queue for the time d, in order with the queue's copies, and returns at once.
	// If the time d is 0 or less, Step queues work that ends at once. Step fails with kind Unsupported if the device
	// cannot run kernels. If the queued work fails later, the next mark of the queue returns the error.
	Step(d time.Duration) error
}

// Timer is a queue that can measure time with the device's own clock, without delays of the host.
type Timer interface {
	// NewStamp creates a stamp of this queue. NewStamp fails with kind Unsupported if the device has no clock of its
	// own. The caller closes the stamp before the queue.
	NewStamp() (Stamp, error)
}

// Stamp measures the time at which its queue reaches the point where the stamp was recorded. A Stamp can be recorded
// many times. Only one goroutine may use a Stamp at a time.
type Stamp interface {
	// Record places the stamp after all work that is queued now.
	Record() error
	// Since waits until the queues have reached both stamps, and returns the time from the parameter named earlier to
	// the receiver. The two stamps that Since compares may belong to different queues of the same device. Since
	// returns a negative time if the receiver was reached before the parameter named earlier. Since returns the first
	// error of the work before the stamps. Since fails with kind Invalid if a stamp was never recorded, or if the two
	// stamps belong to different devices.
	Since(earlier Stamp) (time.Duration, error)
	// Close frees the stamp's resources.
	Close() error
}

// Follower is a queue that can wait for another queue of its device without blocking
// the host.
type Follower interface {
	// Follow makes all later work of this queue wait for the work before the mark m, and returns at once. The mark m
	// belongs to another queue of the same device. Follow uses the present position of the mark m, even if m is
	// recorded again later. If the mark m was never recorded, Follow delays nothing. Follow fails with kind Invalid
	// if the mark m belongs to another device. If the work before the mark m fails, only the mark m returns the
	// error; the marks of this queue do not.
	Follow(m Mark) error
}
