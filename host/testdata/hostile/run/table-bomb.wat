;; Takes table elements for ever.
;; want: OutOfFuelError: used up
(table 1 funcref)
(func $bad (loop $l (drop (table.grow (ref.null func) (i32.const 1000))) (br $l)))
