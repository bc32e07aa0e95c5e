// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// target opens models in folders of their own.
func target() storetest.Target {
	return storetest.Target{Open: func(t *testing.T) object.Store { return model.NewIn(storetest.Dir(t)) }}
}

func TestConformance(t *testing.T) {
	effort.SingleThreaded(t)
	storetest.RunSequential(t, target())
	storetest.RunLists(t, target())
}

func TestConformanceOfConcurrentCalls(t *testing.T) { storetest.RunConcurrent(t, target()) }

// TestRandom proves nothing of the model, which is compared with itself, but
// that the comparison holds where nothing is wrong.
func TestRandom(t *testing.T) {
	storetest.Random(t, 1, 1000, storetest.Target{Open: func(*testing.T) object.Store { return model.New() }})
}
