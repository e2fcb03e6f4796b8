// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

// event is a control instruction, with the cost of the instructions before it.
type event struct {
	op      byte
	cost    uint64 // cost since the previous event, including this instruction
	label   uint32 // label of a br or br_if
	targets [2]int // bounds of a br_table's labels in function.targets
	point   int    // point of its possible charge; -1 if it has none
	rest    uint64 // cost from the point to the end of the block, without inner loops
	before  int32  // previous event with a possible charge in the same block, -1 if there is none
}

// If a branch may skip code, the rest of the code gets a charge of its own when the code that would be paid for
// together is longer than maxChunk and the rest is at least minRest. Code that is paid for and not run is then limited
// to some instructions per charge, and a charge costs a few percent of the code that it pays for.
const (
	maxChunk = 64
	minRest  = 24
	// maxSplits limits the splits of a function, so that the compiler does not get code that is mostly ours.
	maxSplits = 2000
)

// unreachable is the path length of unreachable code.
const unreachable = -1

// region is code that is paid for by one charge. It extends from the charge to the end of its block.
type region struct {
	point int   // point of the charge
	paid  int64 // charge: the longest path in the region
	outer int64 // length of the path in the surrounding region, up to here
}

// scope is an open block, loop or if, or the function.
type scope struct {
	op      byte
	regions int   // number of regions when it began
	reach   int64 // longest path to its end, in the surrounding region
	skip    int64 // length of the path to an if, where the else continues
	last    int32 // event with a possible charge
}

// paths computes the amount of each charge: the longest path that control can take to the next charge or the end of the
// region. All paths end, because each loop begins with a charge.
type paths struct {
	f       *function
	regions []region
	open    []scope
	sums    []uint64
	length  int64 // length of the path in the innermost region
	splits  int
}

// measureRests sums the cost after each possible charge in its block.
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

// measurePaths sets the charges of the function's points, and its charge at entry.
func (p *paths) measurePaths(f *function, events []event, chunk int64, rest uint64) {
	p.f, p.splits = f, 0
	p.measureRests(events)
	p.regions = append(p.regions[:0], region{point: -1})
	p.open = append(p.open[:0], scope{op: opBlock, regions: 1, reach: unreachable})
	// An empty function is not free, because it was called.
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

// walkCost continues the path.
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

// closeRegions ends all regions but the first n. Their charges are then known.
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

// branchTo continues the path at the end of a block. A loop begins with a charge.
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

// lengthIn returns the length of the path in the n-th region.
func (p *paths) lengthIn(n int) int64 {
	if len(p.regions) > n && p.length != unreachable {
		return p.regions[n].outer
	}
	return p.length
}

// passEvent follows control through an instruction.
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
