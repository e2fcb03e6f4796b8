;; Calls itself without end through a table.
;; want: LimitError: call depth
(table 1 funcref)
(elem (i32.const 0) $bad)
(func $bad (call_indirect (i32.const 0)))
