// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

// Frames are measured in stack units, so that a few huge frames count as much as many small ones. The size of the code
// also counts, because the compiler gives each spilled value its own slot. A unit is at most 512 bytes, and about 64
// bytes in practice.
const (
	slotsPerUnit        = 8
	instructionsPerUnit = 64
)

// weighRecursion computes the cost of recursion. Only calls that can be part of a cycle reduce the remaining depth:
// direct calls inside a strongly connected component of the call graph, and all indirect calls, because their targets
// are unknown. Between two such calls, the stack contains a chain of plain calls, whose length is limited by the call
// graph. An indirect call costs the weight of the heaviest chain that leads to it. weighRecursion returns an error if
// this weight is too large.
func (m *module) weighRecursion(depth uint32) error {
	for i := range m.functions {
		f := &m.functions[i]
		f.weight = 1 + f.slots/slotsPerUnit + f.size/instructionsPerUnit
	}
	g := m.findComponents()
	// The weight of a component is the weight of its heaviest function.
	for i := range m.functions {
		c := g.of[i]
		g.weight[c] = max(g.weight[c], m.functions[i].weight)
	}
	// The components are visited in descending order, so that callers come before their callees: the component of a
	// caller has a higher number.
	for c := len(g.members) - 1; c >= 0; c-- {
		g.path[c] += g.weight[c]
		for _, i := range g.members[c] {
			m.functions[i].pathIn = g.path[c]
			g.spreadWeight(m.functions[i].points, c)
			if g.path[c] > uint64(depth) {
				return &LimitError{What: "stack units of nested calls", Value: g.path[c], Max: uint64(depth), Offset: m.functions[i].base}
			}
		}
	}
	m.keepRecursive(g)
	return nil
}

// keepRecursive removes the points of calls that cannot be part of a cycle, and computes the cost of all other calls.
func (m *module) keepRecursive(g *callGraph) {
	for i := range m.functions {
		f := &m.functions[i]
		kept := f.points[:0]
		for _, p := range f.points {
			switch p.kind {
			case pointCall:
				if g.of[p.arg] != g.of[i] {
					continue
				}
				p.arg = uint32(f.weight)
			case pointIndirect:
				p.arg = uint32(f.pathIn)
			}
			kept = append(kept, p)
		}
		f.points = kept
	}
}

// callGraph is the condensation of the graph of direct calls: its nodes are strongly connected components. The
// component of a callee has a lower number than the component of its caller.
type callGraph struct {
	of      []int   // component of each function, by function
	members [][]int // functions of each component
	weight  []uint64
	path    []uint64 // weight of the heaviest chain of calls that leads to the component
}

// spreadWeight extends the heaviest chain to component c by its calls of other components. points are the points of one
// function in c.
func (g *callGraph) spreadWeight(points []point, c int) {
	for _, p := range points {
		if p.kind == pointCall && g.of[p.arg] != c {
			callee := g.of[p.arg]
			g.path[callee] = max(g.path[callee], g.path[c])
		}
	}
}

// findComponents runs Tarjan's algorithm. It uses an explicit stack, because a module may have chains of calls of any
// length.
func (m *module) findComponents() *callGraph {
	n := len(m.functions)
	g := &callGraph{of: make([]int, n)}
	index, low := make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	var stack []int
	type visit struct{ node, next int }
	var path []visit
	count := 0
	enter := func(v int) {
		count++
		index[v], low[v] = count, count
		stack, onStack[v] = append(stack, v), true
		path = append(path, visit{node: v})
	}
	for root := range n {
		if index[root] != 0 {
			continue
		}
		for enter(root); len(path) > 0; {
			top := &path[len(path)-1]
			v, points := top.node, m.functions[top.node].points
			if top.next < len(points) {
				p := points[top.next]
				top.next++
				if p.kind != pointCall {
					continue
				}
				if w := int(p.arg); index[w] == 0 {
					enter(w)
				} else if onStack[w] {
					low[v] = min(low[v], index[w])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				caller := path[len(path)-1].node
				low[caller] = min(low[caller], low[v])
			}
			if low[v] == index[v] {
				stack = g.closeComponent(stack, onStack, v)
			}
		}
	}
	g.weight, g.path = make([]uint64, len(g.members)), make([]uint64, len(g.members))
	return g
}

// closeComponent removes the component with the root v from the stack.
func (g *callGraph) closeComponent(stack []int, onStack []bool, v int) []int {
	var members []int
	for {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		onStack[w] = false
		g.of[w] = len(g.members)
		members = append(members, w)
		if w == v {
			g.members = append(g.members, members)
			return stack
		}
	}
}
