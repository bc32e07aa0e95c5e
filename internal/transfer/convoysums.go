// SPDX-License-Identifier: Apache-2.0

package transfer

// startSums starts the checksums of a batch, which begin when the copies of the batch have ended. If the driver refuses
// to start all at once, startSums starts each alone. The seats may belong to several loads, and only the load with the
// refused checksum may fail.
func (v *convoy) startSums(b *batch, seats []*seat) {
	v.sums = v.sums[:0]
	for _, s := range seats {
		if s.sum.Sum != nil {
			v.sums = append(v.sums, s.sum)
		}
	}
	if len(v.sums) > 1 && v.summer != nil {
		if m, err := v.anyMark(); err == nil {
			if err = v.summer.StartAll(b.mark, v.sums, m); err == nil {
				b.sums = m
				return
			}
			_ = v.takeBack(m, err) // each sum that starts alone reports its own error
		}
	}
	for _, s := range seats {
		if x := &s.sum; x.Sum != nil {
			s.late = x.Sum.Start(b.mark, x.Ptr, x.N, x.First, x.Size)
		}
	}
}

// prove records the result of a batch's checksums, if they have ended.
func (v *convoy) prove(b *batch) bool {
	done, err := b.sums.Done()
	if !done && err == nil {
		return false
	}
	if err != nil {
		// The kernels may still read the memory of their loads.
		if ended := b.sums.Wait(); ended != nil {
			err = ended
		}
	}
	b.sumErr = v.takeBack(b.sums, err)
	b.proved.Store(true)
	return true
}

// SumDone reports without blocking whether the checksum of the seat has ended, and its error. Callers call SumDone only
// after Done has reported true.
func (s *seat) SumDone() (bool, error) {
	b := s.batch.Load()
	switch {
	case s.sum.Sum == nil:
		return true, nil
	case b.sums == nil:
		return s.sum.Sum.Done()
	case !b.proved.Load():
		s.convoy.move()
	}
	if !b.proved.Load() {
		return false, nil
	}
	return true, b.sumErr
}

// WaitSum waits until the checksum of the seat has ended, and returns its error. Callers call WaitSum only after Wait.
func (s *seat) WaitSum() error {
	if b := s.batch.Load(); s.sum.Sum != nil && b.sums == nil {
		return s.sum.Sum.Wait()
	}
	return poll(s.SumDone)
}
