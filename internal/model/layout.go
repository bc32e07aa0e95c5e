// SPDX-License-Identifier: Apache-2.0

package model

// Run is a run of file bytes and its place in the destination.
type Run struct {
	Off, Len int64
	At       int64
	// With Stride > 0 only the first Width bytes out of every Stride are
	// wanted; they lie one behind the other from At on.
	Width, Stride int64
}

// Layout is one file's destination.
type Layout struct {
	Size     int64 // bytes the destination needs
	Align    int64 // alignment its address should have
	Segments []Run
}

const (
	// MinAlign is what a destination's address must be aligned to: the widest
	// element of any dtype, so that placements keep their own alignment.
	MinAlign = 8
	// gpuAlign is what CUDA's allocators give and wide loads like.
	gpuAlign = 256
	// pageAlign lets direct reads land in place in host memory.
	pageAlign = 4096
)

// layout places parts of tensors, which are in order of offset, and returns the
// place of each. Neighbours in the file stay neighbours in memory, so that a file is
// one run; a tensor whose place would not suit its dtype starts a run of its own.
// A part of rows that are apart in the file is packed.
//
// In addressable memory a run keeps the file's offset within a page, so that
// whole pages can be read past the page cache straight into place. On a GPU it
// starts at the alignment of an allocation.
func layout(parts []part, addressable bool) (Layout, []int64) {
	l := Layout{Align: gpuAlign}
	if addressable {
		l.Align = pageAlign
	}
	at := make([]int64, len(parts))
	var run *Run
	for i, t := range parts {
		need := t.DType.Align()
		if t.Size == 0 {
			// No bytes: any aligned place inside the destination will do.
			at[i] = l.Size / need * need
			continue
		}
		if !t.contiguous() {
			at[i] = (l.Size + gpuAlign - 1) / gpuAlign * gpuAlign
			l.Size = at[i]
			t.each(func(off int64) {
				l.Segments = append(l.Segments, Run{Off: off, Len: (t.rows-1)*t.stride + t.width, At: l.Size, Width: t.width,
					Stride: t.stride})
				l.Size += t.rows * t.width
			})
			run = nil
			continue
		}
		if run != nil && run.Off+run.Len == t.Offset && (run.At+run.Len)%need == 0 {
			at[i] = run.At + run.Len
			run.Len += t.Size
		} else {
			at[i] = startOfRun(l.Size, t, need, addressable)
			l.Segments = append(l.Segments, Run{Off: t.Offset, Len: t.Size, At: at[i]})
			run = &l.Segments[len(l.Segments)-1]
		}
		l.Size = run.At + run.Len
	}
	return l, at
}

func startOfRun(size int64, t part, need int64, addressable bool) int64 {
	if addressable && t.Offset%need == 0 {
		phase := t.Offset % pageAlign
		at := size/pageAlign*pageAlign + phase
		if at < size {
			at += pageAlign
		}
		return at
	}
	return (size + gpuAlign - 1) / gpuAlign * gpuAlign
}
