;; Calls an empty table element.
;; want: TrapError: table|null
(table 1 funcref)
(func $bad (call_indirect (i32.const 0)))
