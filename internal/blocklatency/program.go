// SPDX-License-Identifier: Apache-2.0

package blocklatency

import "github.com/cilium/ebpf/asm"

// parts is the number of buckets per doubling of the latency.
const (
	partBits = 2
	parts    = 1 << partBits
	slots    = 64 * parts
)

// Places on the stack of the programs.
const (
	keyAt    = -16 // device and sector of a request
	sectorAt = -8
	valueAt  = -24 // a time or a count
	slotAt   = -32 // key of a bucket
)

// loadKey writes the device and the sector of the request into the key on the stack. R6 holds the context.
func loadKey(e event) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, e.dev, asm.Word),
		asm.StoreMem(asm.RFP, keyAt, asm.R2, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, e.sector, asm.DWord),
		asm.StoreMem(asm.RFP, sectorAt, asm.R2, asm.DWord),
	}
}

// call calls a function of maps with the map and the key at a place of the stack.
func call(fn asm.BuiltinFunc, fd int, key int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, fd),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		fn.Call(),
	}
}

// update writes the value on the stack into a map.
func update(fd int, key, flags int32) asm.Instructions {
	return append(asm.Instructions{
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, valueAt),
		asm.Mov.Imm(asm.R4, flags),
	}, call(asm.FnMapUpdateElem, fd, key)...)
}

// issued returns the program that runs when a request goes to its device: it stores the time.
func issued(e event, starts int) asm.Instructions {
	p := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	p = append(p, loadKey(e)...)
	p = append(p, asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.RFP, valueAt, asm.R0, asm.DWord))
	p = append(p, update(starts, keyAt, 0)...)
	return append(p, asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// completed returns the program that runs when a device has completed a request: it adds one to the bucket of the
// device, of the first letter of the flags and of the latency.
func completed(e event, starts, buckets int) asm.Instructions {
	p := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	p = append(p, loadKey(e)...)
	p = append(p, call(asm.FnMapLookupElem, starts, keyAt)...)
	p = append(p,
		asm.JEq.Imm(asm.R0, 0, "end"), // issued before the recording began
		asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord))
	p = append(p, call(asm.FnMapDeleteElem, starts, keyAt)...)
	p = append(p,
		asm.FnKtimeGetNs.Call(),
		asm.Sub.Reg(asm.R0, asm.R7),
		asm.Mov.Reg(asm.R7, asm.R0))
	p = append(p, slotOf()...)
	p = append(p,
		// key = device << 32 | letter << 16 | slot
		asm.LoadMem(asm.R1, asm.R6, e.flags, asm.Byte),
		asm.LSh.Imm(asm.R1, 16),
		asm.Or.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, keyAt, asm.DWord),
		asm.LSh.Imm(asm.R1, 32),
		asm.Or.Reg(asm.R2, asm.R1),
		asm.StoreMem(asm.RFP, slotAt, asm.R2, asm.DWord))
	p = append(p, call(asm.FnMapLookupElem, buckets, slotAt)...)
	p = append(p,
		asm.JNE.Imm(asm.R0, 0, "add"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, valueAt, asm.R1, asm.DWord))
	const ifNew = 1
	p = append(p, update(buckets, slotAt, ifNew)...)
	p = append(p, call(asm.FnMapLookupElem, buckets, slotAt)...)
	return append(p,
		asm.JEq.Imm(asm.R0, 0, "end"), // the map is full
		asm.Mov.Imm(asm.R1, 1).WithSymbol("add"),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return())
}

// slotOf computes the bucket of the nanoseconds in R7 into R2: parts times the logarithm to base 2, plus the bits that
// follow the first one. Function slot does the same.
func slotOf() asm.Instructions {
	p := asm.Instructions{asm.Mov.Reg(asm.R1, asm.R7), asm.Mov.Imm(asm.R2, 0)}
	for _, shift := range []struct {
		by    int32
		label string
	}{{32, "s16"}, {16, "s8"}, {8, "s4"}, {4, "s2"}, {2, "s1"}, {1, "s0"}} {
		p = append(p,
			asm.Mov.Reg(asm.R3, asm.R1),
			asm.RSh.Imm(asm.R3, shift.by),
			asm.JEq.Imm(asm.R3, 0, shift.label),
			asm.Mov.Reg(asm.R1, asm.R3),
			asm.Add.Imm(asm.R2, shift.by),
			asm.Mov.Imm(asm.R4, 0).WithSymbol(shift.label))
	}
	return append(p,
		asm.JLT.Imm(asm.R2, partBits, "few"),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.Sub.Imm(asm.R3, partBits),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.RSh.Reg(asm.R4, asm.R3),
		asm.And.Imm(asm.R4, parts-1),
		asm.LSh.Imm(asm.R2, partBits).WithSymbol("few"),
		asm.Add.Reg(asm.R2, asm.R4))
}
