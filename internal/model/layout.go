// SPDX-License-Identifier: Apache-2.0

package model

// Run is a contiguous range of file bytes, together with its offset in the destination memory.
type Run struct {
	Off, Len int64
	At       int64
	// Width and Stride describe a Run that consists of rows with gaps between them in the file. If Stride is
	// positive, only the first Width bytes of every Stride bytes are loaded, and they are packed in the destination
	// from offset At on.
	Width, Stride int64
}

// Layout describes the memory into which the chosen tensors of one file are loaded.
type Layout struct {
	Size     int64 // number of bytes that the destination memory needs
	Align    int64 // alignment in bytes that the address of the destination should have
	Segments []Run
}

const (
	// MinAlign is the alignment in bytes that the address of every destination of a load must have. MinAlign is the
	// size of the widest tensor element, so that every tensor keeps the alignment of its dtype.
	MinAlign = 8
	// gpuAlign is the alignment of CUDA's allocators, which wide loads prefer.
	gpuAlign = 256
	// kernelAlign is the alignment of tensors on a GPU that have at least this size. Kernels that multiply FP8 matrices
	// refuse other addresses, and such tensors often follow a scale of 4 bytes in the file.
	kernelAlign = 16
	// pageAlign lets direct reads go straight into host memory.
	pageAlign = 4096
)

// layout assigns an offset in the destination to each part. The parts are in order of file offset. Neighbours in the
// file stay neighbours in memory, so that a file is one run. A tensor starts its own run if its offset would not suit
// its dtype or, on a GPU, its kernels. A part with rows that are apart in the file is packed.
//
// In addressable memory, a run keeps its file offset within a page, so that whole pages can be read past the page
// cache straight into place. On a GPU, a run starts at the alignment of an allocation.
func layout(parts []part, addressable bool) (Layout, []int64) {
	l := Layout{Align: gpuAlign}
	if addressable {
		l.Align = pageAlign
	}
	at := make([]int64, len(parts))
	var run *Run
	for i, t := range parts {
		need := t.DType.Align()
		if !addressable && t.Size >= kernelAlign {
			need = max(need, kernelAlign)
		}
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
