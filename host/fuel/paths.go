// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

// event is a control instruction with the cost of the instructions before it.
type event struct {
	op      byte
	cost    uint64 // cost since the previous event, including this instruction
	label   uint32 // label of a br or br_if, as the number of blocks to leave
	targets [2]int // bounds of a br_table's labels in function.targets
	point   int    // index in function.points of the place where a charge may be inserted; -1 if none
	rest    uint64 // cost from the point to the end of the block, without the loops in it
	before  int32  // previous event of the same block that has a possible charge; -1 if there is none
}

// The code after a branch has its own charge if the branch may skip the code, if the region would otherwise be longer
// than maxChunk, and if the code costs at least minRest. This limits how much code is charged but not executed, and the
// charges take only a few percent of the time of the code.
const (
	maxChunk = 64
	minRest  = 24
	// maxSplits limits the additional charges in a function, so that the compiled code does not consist mostly of
	// charges.
	maxSplits = 2000
)

// unreachable is the length of a path in unreachable code.
const unreachable = -1

// region is the code that is paid for by one charge. It extends from the charge to the end of the block.
type region struct {
	point int   // point at which the charge is inserted
	paid  int64 // the charge, which is the length of the longest path in the region so far
	outer int64 // length of the path to this point in the surrounding region
}

// scope is an open block, loop or if, or the function itself.
type scope struct {
	op      byte
	regions int   // number of regions at the beginning of the scope
	reach   int64 // longest path to the end of the scope, measured in the surrounding region
	skip    int64 // length of the path to an if, where the else branch continues
	last    int32 // last event that has a possible charge
}

// paths computes the charges. Each charge is the length of the longest path to the next charge or to the end of the
// region. All paths end, because each loop begins with a charge.
type paths struct {
	f       *function
	regions []region
	open    []scope
	sums    []uint64
	length  int64 // length of the current path in the innermost region
	splits  int
}

// measureRests computes, for each possible charge, the cost of the code from the charge to the end of the block.
func (p *paths) measureRests(events []event) {
	p.open = append(p.open[:0], scope{last: -1})
	p.sums = append(p.sums[:0], 0)
	for n := range events {
		e := &events[n]
		p.sums[len(p.sums)-1] += e.cost
		top := &p.open[len(p.open)-1]
		if e.op == opEnd || e.op == opElse {
			for at := top.last; at >= 0; at = events[at].before {
				events[at].rest = p.sums[len(p.sums)-1] - events[at].rest
			}
			top.last = -1
		}
		switch e.op {
		case opBlock, opIf:
			p.open = append(p.open, scope{op: e.op, last: -1})
		case opLoop:
			p.open = append(p.open, scope{op: e.op, last: -1})
			p.sums = append(p.sums, 0)
		case opEnd:
			if top.op == opLoop {
				p.sums = p.sums[:len(p.sums)-1]
			}
			p.open = p.open[:len(p.open)-1]
		}
		if e.point >= 0 && len(p.open) > 0 {
			top = &p.open[len(p.open)-1]
			e.before, top.last, e.rest = top.last, int32(n), p.sums[len(p.sums)-1]
		}
	}
}

// measurePaths sets the charges at the points of the function and at its entry.
func (p *paths) measurePaths(f *function, events []event, chunk int64, rest uint64) {
	p.f, p.splits = f, 0
	p.measureRests(events)
	p.regions = append(p.regions[:0], region{point: -1})
	p.open = append(p.open[:0], scope{op: opBlock, regions: 1, reach: unreachable})
	// An empty function also costs something, because it is called.
	p.length = 1
	for n := range events {
		e := &events[n]
		p.walkCost(int64(e.cost))
		p.passEvent(e)
		if e.op == opLoop {
			continue
		}
		if e.point >= 0 && p.length != unreachable && e.rest >= rest && p.splits < maxSplits && p.length+int64(events[n+1].cost) > chunk {
			p.splits++
			p.beginRegion(e.point)
		}
	}
	for p.f.entry = uint64(p.regions[0].paid); len(p.regions) > 1; {
		p.closeRegions(1)
	}
}

// walkCost adds the cost of instructions to the current path.
func (p *paths) walkCost(cost int64) {
	if p.length == unreachable {
		return
	}
	p.length += cost
	top := &p.regions[len(p.regions)-1]
	top.paid = max(top.paid, p.length)
}

// beginRegion starts a region at a point.
func (p *paths) beginRegion(point int) {
	p.regions = append(p.regions, region{point: point, outer: p.length})
	if p.length != unreachable {
		p.length = 0
	}
}

// closeRegions ends all regions except for the first n, and records their charges, which are known now.
func (p *paths) closeRegions(n int) {
	if len(p.regions) > n && p.length != unreachable {
		p.length = p.regions[n].outer
	}
	for _, r := range p.regions[n:] {
		if r.paid > 0 {
			p.f.charges = append(p.f.charges, uint64(r.paid))
			p.f.points[r.point].arg = uint32(len(p.f.charges))
		}
	}
	p.regions = p.regions[:n]
}

// branchTo adds a branch from the current path to the end of a block. If the target is a loop, the path ends, because
// the loop begins with a charge.
func (p *paths) branchTo(label uint32) {
	if p.length == unreachable || int(label) >= len(p.open) {
		return
	}
	to := &p.open[len(p.open)-1-int(label)]
	if to.op == opLoop {
		return
	}
	to.reach = max(to.reach, p.lengthIn(to.regions))
}

// lengthIn returns the length of the current path in the n-th region.
func (p *paths) lengthIn(n int) int64 {
	if len(p.regions) > n && p.length != unreachable {
		return p.regions[n].outer
	}
	return p.length
}

// passEvent follows the control flow through an instruction.
func (p *paths) passEvent(e *event) {
	switch e.op {
	case opBlock:
		p.enterBlock(e.op)
	case opIf:
		p.enterBlock(e.op)
		p.open[len(p.open)-1].skip = p.length
	case opLoop:
		p.enterBlock(e.op)
		p.beginRegion(e.point)
	case opElse:
		top := &p.open[len(p.open)-1]
		top.reach = max(top.reach, p.lengthIn(top.regions))
		p.closeRegions(top.regions)
		p.length, top.op = top.skip, opBlock
	case opEnd:
		top := p.open[len(p.open)-1]
		p.open = p.open[:len(p.open)-1]
		p.closeRegions(top.regions)
		if p.length = max(p.length, top.reach); top.op == opIf {
			p.length = max(p.length, top.skip)
		}
	case opBrIf:
		p.branchTo(e.label)
	case opBr:
		p.branchTo(e.label)
		p.length = unreachable
	case opBrTable:
		for _, label := range p.f.targets[e.targets[0]:e.targets[1]] {
			p.branchTo(label)
		}
		p.length = unreachable
	case opReturn, opUnreachable:
		p.length = unreachable
	}
}

func (p *paths) enterBlock(op byte) {
	p.open = append(p.open, scope{op: op, regions: len(p.regions), reach: unreachable, skip: unreachable})
}
